// Writes a pickle of protocol 2: dicts, lists, numbers, text and objects of Python's classes.
//
//   PickleWriter out;
//   out.begin_dict();
//   out.text("sizes");
//   out.begin_list();
//   out.integer(3);
//   out.end_list();
//   out.end_dict();
//   out.finished();         // the bytes
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace piton {

class PickleWriter {
 public:
  void none() { pickle_ += 'N'; }
  void boolean(bool value) { pickle_ += value ? '\x88' : '\x89'; }
  void integer(std::int64_t value);
  void number(double value);
  void text(std::string_view value);
  void begin_dict() { pickle_ += "}("; }  // keys and values in turn
  void end_dict() { pickle_ += 'u'; }
  void begin_list() { pickle_ += "]("; }
  void end_list() { pickle_ += 'e'; }
  void begin_tuple() { pickle_ += '('; }
  void end_tuple() { pickle_ += 't'; }
  void integers(std::span<const std::int64_t> values);  // a tuple
  // A class, function or value by its name: ("torch", "bfloat16").
  void global(std::string_view module, std::string_view name);
  // The last two values, a global and a tuple of arguments, become what the call returns.
  void call() { pickle_ += 'R'; }
  // An object of a class without arguments; end_object() after names and values in turn.
  void begin_object(std::string_view module, std::string_view name);
  void end_object() { pickle_ += "ub"; }
  // The same for a class that takes one value as its state; it comes between the two.
  void begin_object_of_state(std::string_view module, std::string_view name);
  void end_object_of_state() { pickle_ += 'b'; }

  // The whole pickle, of one value. Nothing can follow.
  const std::string& finished();

 protected:
  void persistent_id() { pickle_ += 'Q'; }  // of the last value

 private:
  std::string pickle_ = "\x80\x02";
};

}  // namespace piton
