#include "megatron/megatron_writer.h"

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/files/files.h"
#include "checkpoint/manifest.h"
#include "checkpoint/safetensors.h"
#include "megatron/deepspeed/deepspeed_files.h"
#include "megatron/format/arguments.h"
#include "megatron/format/norm_gains.h"
#include "megatron/ranks/rank_folders.h"
#include "megatron/torch_dist_writer.h"
#include "pickle/torch_writer.h"

namespace piton {
namespace {

namespace fs = std::filesystem;

// The keys of nested dicts for a name: its first parts are dicts; in a layer the rest of the name
// is one key, as in state dicts.
std::vector<std::string> path_of(const std::string& name, MegatronTree tree) {
  if (tree != MegatronTree::kLegacy) return {name};
  std::vector<std::string> path;
  std::string rest = name;
  for (const char* outer :
       {"language_model.", "encoder.", "decoder.", "embedding.", "word_embeddings.",
        "position_embeddings.", "tokentype_embeddings.", "pooler.", "output_layer.", "lm_head.",
        "binary_head.", "word_embeddings_for_head."}) {
    if (!rest.starts_with(outer)) continue;
    const std::size_t size = std::string_view(outer).size();
    path.push_back(rest.substr(0, size - 1));
    rest = rest.substr(size);
  }
  path.push_back(rest);
  return path;
}

// A tree of dicts whose leaves are tensor numbers.
struct Node {
  std::string name;  // in its parent
  std::vector<Node> children;
  std::optional<std::size_t> tensor;

  Node& child(const std::string& key) {
    for (Node& node : children) {
      if (node.name == key) return node;
    }
    Node& added = children.emplace_back();
    added.name = key;
    return added;
  }
};

class RankFile {
 public:
  RankFile(const fs::path& path, TensorSource& source, const MegatronWriteOptions& options)
      : out_(path), source_(source), options_(options) {
    for (const CanonicalTensor& one : source.tensors(TensorKind::kWeight))
      dtypes_[one.name] = one.dtype;
  }

  void write(const ModelConfig& model, const RankPlace& place) {
    const auto [t, p, e] = place;
    model_ = &model;
    out_.begin_dict();
    out_.text("checkpoint_version");
    out_.number(options_.layout.version);
    out_.text("iteration");
    out_.integer(options_.iteration);
    if (options_.form == MegatronForm::kDeepSpeed) {
      write_module(t, p);
    } else {
      for (int chunk = 0; chunk < options_.layout.chunks; ++chunk) {
        out_.text(options_.layout.chunks > 1 ? fmt::format("model{}", chunk)
                                             : std::string("model"));
        write_chunk(tensors_of_expert_rank(megatron_tensors(model, options_.layout, t, p, chunk),
                                           model, options_.layout, e));
      }
    }
    out_.text(kPitonArguments);
    const MegatronArguments arguments = options_.arguments_of(model);
    write_megatron_arguments(arguments, out_);
    if (options_.arguments) {
      out_.text(kMegatronArguments);
      write_megatron_namespace(arguments, out_);
    }
    out_.end_dict();
    assemble(source_, order_, options_.threads, [&](std::size_t, std::span<const std::byte> bytes) {
      out_.append(bytes);
      if (options_.wrote) options_.wrote(std::ssize(bytes));
    });
    out_.commit();
  }

 private:
  void write_module(int t, int p) {
    std::vector<MegatronTensor> tensors = megatron_tensors(*model_, options_.layout, t, p, 0);
    out_.text("dp_world_size");
    out_.integer(0);
    out_.text("module");
    if (!is_deepspeed_pipeline(*model_)) return write_chunk(std::move(tensors));
    std::map<std::int64_t, std::int64_t> layers;
    for (const PlacedLayer& one : megatron_layers(*model_, options_.layout, p, 0))
      layers[one.local] = one.layer;
    Node names;
    for (std::size_t i = 0; i < tensors.size(); ++i)
      names.child(numbered_name(tensors[i].key, layers)).tensor = i;
    out_.begin_dict();
    out_.text("module");
    write_node(names, tensors);
    out_.end_dict();
  }

  // "3.mlp.dense_4h_to_h.weight" for "layers.0.fc2.weight" of the first stage.
  std::string numbered_name(const std::string& key,
                            const std::map<std::int64_t, std::int64_t>& layers) const {
    const std::string name = megatron_name(key, MegatronTree::kLegacy);
    constexpr std::string_view kLayers = "layers.";
    if (key.starts_with(kLayers)) {
      const std::int64_t local = std::stoll(key.substr(kLayers.size()));
      const std::size_t at = name.find(kLayers) + kLayers.size();
      return fmt::format("{}{}", kFirstPipelineLayer + layers.at(local),
                         name.substr(name.find('.', at)));
    }
    constexpr std::string_view kFinal = "final_norm.";
    if (key.starts_with(kFinal)) {
      return fmt::format("{}.final_layernorm.{}", kFirstPipelineLayer + model_->layers + 1,
                         key.substr(kFinal.size()));
    }
    constexpr std::string_view kEmbedding = "language_model.embedding.";
    PITON_ASSERT(name.starts_with(kEmbedding), "{} is in no pipeline", key);
    return fmt::format("tied_modules.embed.{}", name.substr(kEmbedding.size()));
  }

  void write_chunk(std::vector<MegatronTensor> tensors) {
    const MegatronStacks stacks = megatron_stacks(*model_);
    std::vector<std::string> names;
    const NormsApart apart(*model_, tensors);
    for (const MegatronTensor& tensor : tensors) {
      names.push_back(megatron_name(
          tensor.key, apart.contain(tensor.key) ? MegatronTree::kCore : options_.tree, stacks));
    }
    for (std::size_t i = 0, own = tensors.size(); i < own; ++i) {
      for (const std::string& name : megatron_copies(tensors[i].key, options_.tree, stacks)) {
        names.push_back(name);
        tensors.push_back(MegatronTensor(tensors[i]));
      }
    }
    Node root;
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      Node* node = &root;
      for (const std::string& part : path_of(names[i], options_.tree)) node = &node->child(part);
      node->tensor = i;
    }
    write_node(root, tensors);
  }

  void write_node(const Node& node, std::vector<MegatronTensor>& tensors) {
    if (node.tensor) {
      Assembly& assembly = tensors[*node.tensor].assembly;
      const DType dtype = written_dtype(assembly, options_.dtype, dtypes_);
      out_.tensor(safetensors_name(dtype), tensors[*node.tensor].shape().sizes());
      order_.push_back({std::move(assembly), dtype});
      return;
    }
    out_.begin_dict();
    for (const Node& child : node.children) {
      out_.text(child.name);
      write_node(child, tensors);
    }
    out_.end_dict();
  }

  TorchWriter out_;
  const ModelConfig* model_ = nullptr;
  TensorSource& source_;
  const MegatronWriteOptions& options_;
  std::map<std::string, DType> dtypes_;  // of the source
  std::vector<TypedAssembly> order_;     // of the file's storages
};

}  // namespace

bool is_deepspeed_pipeline(const ModelConfig& model) {
  return model.tied && model.embedding_norm && model.positions == PositionKind::kAlibi;
}

void write_megatron(const fs::path& folder, TensorSource& canonical, const ModelConfig& model,
                    const MegatronWriteOptions& options) {
  ShiftedGains source(canonical, model, -1);
  const fs::path files = folder / "release";
  const MegatronLayout& layout = options.layout;
  const bool deepspeed = options.form == MegatronForm::kDeepSpeed;
  if (options.form == MegatronForm::kTorchDist) {
    write_torch_dist(files, source, model, options);
  } else {
    for (int i = 0; i < layout.pipeline * layout.tensor * layout.expert; ++i) {
      const RankPlace place{.t = i % layout.tensor,
                            .p = i / (layout.tensor * layout.expert),
                            .e = i / layout.tensor % layout.expert};
      const fs::path path = deepspeed
                                ? files / fmt::format("mp_rank_{:02}_model_states.pt",
                                                      place.p * layout.tensor + place.t)
                                : files / rank_folder_name(place, layout.pipeline, layout.expert) /
                                      "model_optim_rng.pt";
      RankFile(path, source, options).write(model, place);
    }
  }
  write_text_file(folder / (deepspeed ? kDeepSpeedTracker : kTrackerName), "release");
}

}  // namespace piton
