// Samples of running text: all tokens teach, except by the rules for ends of documents and padding.
//
// A row t[0..s] gives tokens t[0..s), labels t[1..s], and
//   labels        kNoLabel where the input token is an end of document under eod_mask_loss, and
//                 where the label is the pad id
//   positions     0..s-1; under reset_position_ids from 0 again after each end of document
//   segments      under reset_attention_mask: how many ends of documents precede the token in its
//                 sample (an end of document belongs to the document that it ends); else empty
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "data/samples/data_options.h"
#include "data/samples/sample_source.h"
#include "data/samples/token_source.h"

namespace piton {

struct DocumentRules {
  bool reset_position_ids = false;
  bool reset_attention_mask = false;
  bool eod_mask_loss = false;
  std::optional<std::int32_t> eod = {};  // needed by the three above
  // Unset if it is also the end of document: labels that end a text would be ignored.
  std::optional<std::int32_t> pad = {};

  static DocumentRules from(const DataOptions& options, std::optional<std::int32_t> eod,
                            std::optional<std::int32_t> pad);
};

class PretrainingSamples final : public SampleSource {
 public:
  // Throws Error(kUsage) if a rule needs an end-of-document id and there is none.
  PretrainingSamples(std::shared_ptr<const TokenSource> rows, DocumentRules rules);

  std::int64_t size() const override { return rows_->size(); }
  std::int64_t sequence() const override { return rows_->sequence(); }
  void sample(std::int64_t index, Sample& sample) const override;
  void announce(std::int64_t index) const override { rows_->announce(index); }

 private:
  std::shared_ptr<const TokenSource> rows_;
  DocumentRules rules_;
};

}  // namespace piton
