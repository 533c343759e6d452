// Values of templates: Python's, as far as a template can see them.
//
// A value is cheap to copy: its contents are shared and never change, as templates may not change
// lists and dictionaries. Exceptions: namespaces (`{% set ns.x = 1 %}`), iterators and loops. Texts
// are UTF-8 and well-formed; positions in them count characters, as in Python.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

namespace piton::jinja {

// What is wrong while a template runs, without its place, which the evaluator adds.
class TemplateFailure : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Limits of one rendering. A template is foreign code: it may not occupy the machine.
class Budget {
 public:
  // Throws TemplateFailure after 20 million steps. A conversation of a thousand messages needs less
  // than a million.
  void step() {
    if (++steps_ > kMostSteps) fail("takes too many steps: more than 20000000");
  }
  // Counts the bytes of a new value. Throws TemplateFailure after 1 GiB in all.
  void use_bytes(std::size_t bytes) {
    if (bytes > kMostBytes - used_) fail("makes too much text: more than 1 GiB");
    used_ += bytes;
  }

 private:
  static constexpr std::int64_t kMostSteps = 20'000'000;
  static constexpr std::size_t kMostBytes = std::size_t{1} << 30;
  [[noreturn]] static void fail(const char* what) {
    throw TemplateFailure(std::string("the template ") + what +
                          "; shorten the conversation or its lists");
  }

  std::int64_t steps_ = 0;
  std::size_t used_ = 0;
};

enum class Kind : std::uint8_t {
  kUndefined,
  kNone,
  kBool,
  kInt,
  kFloat,
  kText,
  kList,
  kTuple,
  kDict,
  kKeys,  // views of a dictionary
  kValues,
  kItems,
  kRange,
  kIterator,
  kNamespace,
  kLoop,
  kFunction,
};

class JinjaValue;
using Values = std::vector<JinjaValue>;
using Entry = std::pair<JinjaValue, JinjaValue>;

// Most levels of lists and dictionaries in each other.
inline constexpr int kMostNested = 256;

// What a value may refer to: ranges, iterators, functions, ...
struct Object {
  virtual ~Object() = default;
  int depth = 0;  // levels of values inside
};

struct ListData {
  Values items;
  int depth = 1;
};

// Entries in the order of insertion; keys differ.
class DictData {
 public:
  explicit DictData(std::vector<Entry> entries);
  const std::vector<Entry>& entries() const { return entries_; }
  // The value of `key`, or null.
  const JinjaValue* find(const JinjaValue& key) const;
  const JinjaValue* find(std::string_view key) const;
  int depth() const { return depth_; }

 private:
  std::vector<Entry> entries_;
  std::unordered_map<std::string_view, std::size_t> index_;  // of keys that are texts
  int depth_ = 1;
};

class JinjaValue {
 public:
  JinjaValue() = default;  // None

  // `message`: the error if it is used for more than printing and tests.
  static JinjaValue undefined(std::string message);
  static JinjaValue boolean(bool value);
  static JinjaValue integer(std::int64_t value);
  static JinjaValue real(double value);
  static JinjaValue text(std::string value);
  static JinjaValue markup(std::string value);  // the result of `safe` and `escape`
  static JinjaValue list(Values items);
  static JinjaValue tuple(Values items);
  // A later entry with the same key replaces the value of the first.
  static JinjaValue dict(std::vector<Entry> entries);
  static JinjaValue view(Kind kind, const JinjaValue& dict);
  static JinjaValue object(Kind kind, std::shared_ptr<Object> object);

  Kind kind() const { return kind_; }
  bool is(Kind kind) const { return kind_ == kind; }
  bool is_undefined() const { return kind_ == Kind::kUndefined; }
  bool is_none() const { return kind_ == Kind::kNone; }
  bool is_text() const { return kind_ == Kind::kText; }
  bool is_markup() const { return markup_; }
  bool is_sequence() const { return kind_ == Kind::kList || kind_ == Kind::kTuple; }
  bool is_view() const { return kind_ >= Kind::kKeys && kind_ <= Kind::kItems; }
  // True for integers and booleans, as in Python.
  bool is_integral() const { return kind_ == Kind::kInt || kind_ == Kind::kBool; }
  bool is_number() const { return is_integral() || kind_ == Kind::kFloat; }

  std::int64_t as_integer() const;  // kInt, kBool
  double as_real() const;           // numbers
  // kText; of kUndefined the message.
  const std::string& str() const { return *std::get<TextPointer>(data_); }
  const Values& items() const { return std::get<ListPointer>(data_)->items; }  // sequences
  const DictData& dict() const { return *std::get<DictPointer>(data_); }       // kDict and views
  template <typename T>
  T& as() const {
    return static_cast<T&>(*std::get<ObjectPointer>(data_));
  }
  const std::shared_ptr<Object>& object() const { return std::get<ObjectPointer>(data_); }

  // Levels of lists and dictionaries.
  int depth() const;
  // Whether both are the same object (`is sameas`).
  bool same_as(const JinjaValue& other) const;

 private:
  using TextPointer = std::shared_ptr<const std::string>;
  using ListPointer = std::shared_ptr<const ListData>;
  using DictPointer = std::shared_ptr<const DictData>;
  using ObjectPointer = std::shared_ptr<Object>;

  Kind kind_ = Kind::kNone;
  bool markup_ = false;
  std::variant<std::monostate, bool, std::int64_t, double, TextPointer, ListPointer, DictPointer,
               ObjectPointer>
      data_;
};

struct Range : Object {
  std::int64_t start = 0;
  std::int64_t stop = 0;
  std::int64_t step = 1;
  std::int64_t size() const;
};

// Generators and other things that are read once.
struct Iterator : Object {
  Iterator(Values values, std::string type);
  Values items;
  std::size_t next = 0;
  std::string type;  // Python's name: "generator"
};
JinjaValue make_iterator(Values items, std::string type = "generator");

// Attributes in the order of their first assignment.
struct Namespace : Object {
  std::vector<std::pair<std::string, JinjaValue>> attributes;
  JinjaValue* find(std::string_view name);
  void set(std::string_view name, JinjaValue value);
};

// Python's name of the type: "str", "dict", "NoneType".
std::string type_name(const JinjaValue& value);
// As Jinja's messages name it: "dict object", "None".
std::string described_type(const JinjaValue& value);

bool truth(const JinjaValue& value);
// Python's ==.
bool equal(const JinjaValue& a, const JinjaValue& b);
// Python's <. Throws TemplateFailure if the types have no order.
bool less(const JinjaValue& a, const JinjaValue& b);
// Whether len() works; then length() is its result, else length() throws TemplateFailure.
bool has_length(const JinjaValue& value);
std::int64_t length(const JinjaValue& value);
bool is_iterable(const JinjaValue& value);
// What a loop over the value goes through; an iterator is read to its end. Throws TemplateFailure
// if the value is not iterable.
Values iterate(const JinjaValue& value, Budget& budget);

}  // namespace piton::jinja
