// Multi-head latent attention (model/attention_options.h): keys and values of all heads from one
// small row of each token. Each tensor rank has a/t of the heads; the small rows are computed by
// all. A cache holds the small rows (nn/cached_latents.h), or keys and values, where the kernels do
// not attend to latents or the matrix of keys and values has an adapter.
#pragma once

#include <optional>
#include <string>

#include "nn/attention.h"

namespace piton {

struct LatentShape {
  // Without groups, biases of queries, keys and values, and head norms.
  AttentionShape attention;
  std::int64_t query_rank = 0;  // width of the small rows of queries; 0: queries are products of x
  std::int64_t rank = 0;        // width of the latents
  std::int64_t own = 0;         // channels of a key that it has for itself
  std::int64_t turned = 0;      // and that all heads have in common; own + turned = head_size
  std::int64_t value = 0;       // of a value, at most head_size
  double norm_eps = 0;
  bool norms = true;  // RMS norms of the small rows
};

class LatentAttention {
 public:
  LatentAttention(ParameterList& parameters, const Shard& shard, const std::string& name,
                  const LatentShape& latent, const BranchInitialization& initialization);
  // As Attention::forward.
  Value forward(Context& context, const Value& x, const Value& residual,
                const AttentionInput& input) const;

  // Whether a cache may hold latents: that needs one matrix of keys and values for all rows, in
  // which an adapter is not.
  bool attends_to_latents() const { return !key_value_.has_adapters(); }

 private:
  // The heads' results [n, a/t * value], before the output projection.
  Value mixed(Context& context, const Value& x, const AttentionInput& input) const;
  Tensor mixed_from_latents(Context& context, const Value& x, const AttentionInput& input) const;
  // A linear that every tensor rank has whole, for its own rows.
  struct Small {
    WholeLinear linear;
    std::optional<Norm> norm;
  };
  Small small(ParameterList& parameters, const std::string& name, std::int64_t out,
              std::int64_t width, const Initialization& initialization) const;
  Value small_rows(Context& context, const Value& x, const Small& small) const;
  Value normalized(Context& context, const Value& rows, const Small& small) const;
  Value queries(Context& context, const Value& x, const RotarySettings& turn) const;

  Shard shard_;
  AttentionShape shape_;
  LatentShape latent_;
  std::string attention_site_;
  std::string output_site_;
  std::optional<Small> query_down_;
  ColumnLinear query_;
  Small down_;
  ColumnLinear key_value_;
  RowLinear output_;
};

}  // namespace piton
