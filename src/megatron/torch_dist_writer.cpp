#include "megatron/torch_dist_writer.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <initializer_list>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/files/files.h"
#include "checkpoint/assembly.h"
#include "checkpoint/safetensors.h"
#include "megatron/distributed/torch_dist.h"
#include "megatron/format/arguments.h"
#include "pickle/torch_writer.h"

namespace piton {
namespace {

namespace fs = std::filesystem;
using Sizes = std::vector<std::int64_t>;

constexpr const char* kMetadataModule = "torch.distributed.checkpoint.metadata";

struct FilePlace {
  std::string file;
  std::int64_t offset = 0;
  std::int64_t bytes = 0;
};

// A box of a tensor: a weight.
struct WrittenBox {
  Sizes start;  // in the dims before those of the weight, of layers and of experts
  FilePlace place;
};

struct SharedTensor {
  DType dtype = DType::kF32;
  Shape shape;  // of a box, without the dims before
  std::vector<WrittenBox> boxes;

  // Of the dims before.
  Sizes counts() const {
    Sizes counts = boxes.front().start;
    for (const WrittenBox& box : boxes) {
      for (std::size_t dim = 0; dim < counts.size(); ++dim)
        counts[dim] = std::max(counts[dim], box.start[dim] + 1);
    }
    return counts;
  }
};

// Where a tensor of a layer is: under a name without the numbers that are in `start`.
struct SharedName {
  std::string name;
  Sizes start;
};

// {"decoder.layers.mlp.linear_fc1.weight", {3}} for "decoder.layers.3.mlp.linear_fc1.weight", if
// the layers are alike.
SharedName shared_name(const std::string& name, std::optional<std::int64_t> expert, bool alike) {
  SharedName shared{.name = name};
  for (const std::string_view layers : {"decoder.layers.", "encoder.layers."}) {
    if (!alike || !name.starts_with(layers)) continue;
    const std::size_t number = layers.size();
    shared.start.push_back(std::stoll(name.substr(number)));
    shared.name = std::string(layers) + name.substr(name.find('.', number) + 1);
  }
  if (expert) {
    const std::string own = fmt::format("local_experts.{}.", *expert);
    shared.name.replace(shared.name.find(own), own.size(), "experts.");
    shared.start.push_back(*expert);
  }
  return shared;
}

// Layers that are alike are one tensor; those with experts or the gated delta rule next to others
// are not.
bool layers_are_alike(const ModelConfig& model) {
  if (model.state_space) return false;  // each letter has a number
  const bool same_attention = !model.delta || model.delta->attention_every == 1;
  return same_attention && (!model.experts || model.experts->dense_layers.empty());
}

// Modules of Transformer Engine that have a state, and Megatron-core's in their place: those of a
// layer, without experts, and of a model after its stacks.
struct LayerKind {
  bool mixer = true;
  bool mlp = true;  // or experts
  bool experts = false;
  bool states = false;  // of the gated delta rule, or of Mamba-2
  bool attends_to_encoder = false;
};

using Names = std::vector<std::string>;

// Of what a layer begins with.
Names mixer_with_state(const ModelConfig& model, bool states) {
  if (states && model.state_space) return {"mixer.in_proj", "mixer.out_proj"};
  if (states)
    return {"self_attention.in_proj", "self_attention.out_norm", "self_attention.out_proj"};
  Names modules{"self_attention.linear_proj", "self_attention.core_attention"};
  const auto add = [&](std::initializer_list<const char*> names) {
    modules.insert(modules.end(), names.begin(), names.end());
  };
  if (!model.latent) {
    add({"self_attention.linear_qkv"});
    if (model.head_norms) add({"self_attention.q_layernorm", "self_attention.k_layernorm"});
    return modules;
  }
  add({"input_layernorm", "self_attention.linear_kv_down_proj",
       "self_attention.linear_kv_up_proj"});
  if (model.latent->query_rank == 0) {
    add({"self_attention.linear_q_proj"});
  } else {
    add({"self_attention.linear_q_down_proj", "self_attention.linear_q_up_proj"});
  }
  return modules;
}

Names mlp_with_state(const ModelConfig& model, bool experts) {
  if (!experts) return {"mlp.linear_fc1", "mlp.linear_fc2"};
  if (model.experts->shared_ffn_hidden == 0) return {"pre_mlp_layernorm"};
  return {"pre_mlp_layernorm", "mlp.shared_experts.linear_fc1", "mlp.shared_experts.linear_fc2"};
}

Names modules_with_state(const ModelConfig& model, const LayerKind& kind) {
  Names modules;
  const auto add = [&](const Names& names) {
    modules.insert(modules.end(), names.begin(), names.end());
  };
  if (kind.mixer) add(mixer_with_state(model, kind.states));
  if (kind.mlp) add(mlp_with_state(model, kind.experts));
  if (kind.attends_to_encoder) {
    add({"pre_cross_attn_layernorm", "cross_attention.linear_q", "cross_attention.linear_kv",
         "cross_attention.linear_proj", "cross_attention.core_attention"});
  }
  return modules;
}

std::vector<std::string> heads_with_state(const ModelConfig& model) {
  if (model.encoder || model.state_space) return {"output_layer"};
  // T5Model has its head under two names.
  if (model.encoder_decoder) return {"lm_head.output_layer", "output_layer"};
  return {};
}

class DistFolder {
 public:
  DistFolder(const fs::path& folder, const ModelConfig& model, const MegatronWriteOptions& options)
      : folder_(folder), model_(model), options_(options) {}

  void write(TensorSource& source) {
    const std::vector<TypedAssembly> boxes = plan(source);
    std::optional<TorchWriter> out;
    std::size_t current = 0;
    assemble(source, boxes, options_.threads, [&](std::size_t i, std::span<const std::byte> bytes) {
      if (out && i != current) end_box(boxes[current].assembly.name, *out);
      if (!out || i != current) begin_box(boxes[i], out);
      current = i;
      out->append(bytes);
      if (options_.wrote) options_.wrote(std::ssize(bytes));
    });
    end_box(boxes[current].assembly.name, *out);
    for (const auto& [copy, name] : copies_) tensors_[copy] = tensors_.at(name);
    write_empty_state();
    file_->commit();
    write_metadata();
    write_common();
    // The keys of megatron.core.dist_checkpointing.core.CheckpointingConfig.
    write_text_file(folder_ / kTorchDistBackend,
                    "{\"sharded_backend\": \"torch_dist\", \"sharded_backend_version\": 1, "
                    "\"common_backend\": \"torch\", \"common_backend_version\": 1}");
  }

 private:
  // All boxes in the order of the model. A tensor of several weights has one type: that which holds
  // all of them.
  std::vector<TypedAssembly> plan(const TensorSource& source) {
    std::map<std::string, DType> stored;
    for (const CanonicalTensor& one : source.tensors(TensorKind::kWeight))
      stored[one.name] = one.dtype;
    const MegatronStacks stacks = megatron_stacks(model_);
    const MegatronLayout whole{.padded_vocabulary = options_.layout.padded_vocabulary,
                               .apart_states = true};
    std::vector<TypedAssembly> boxes;
    std::vector<MegatronTensor> tensors = megatron_tensors(model_, whole, 0, 0, 0);
    const NormsApart apart(model_, tensors);
    for (MegatronTensor& tensor : tensors) {
      const MegatronTree tree = tree_of(apart.contain(tensor.key));
      const SharedName place = shared_name(megatron_name(tensor.key, tree, stacks),
                                           expert_of_key(tensor.key), layers_are_alike(model_));
      const std::string& name = place.name;
      for (const std::string& copy :
           megatron_copies(tensor.key, MegatronTree::kTransformer, stacks))
        copies_[copy] = name;
      const DType dtype = written_dtype(tensor.assembly, options_.dtype, stored);
      const auto [known, fresh] =
          tensors_.try_emplace(name, SharedTensor{.dtype = dtype, .shape = tensor.shape()});
      SharedTensor& shared = known->second;
      shared.dtype = wider_dtype(shared.dtype, dtype);
      PITON_ASSERT(shared.shape == tensor.shape(), "{} is {} in one layer and {} in another", name,
                   to_string(shared.shape), to_string(tensor.shape()));
      shared.boxes.push_back({.start = place.start});
      boxes.push_back({std::move(tensor.assembly), dtype});
      boxes.back().assembly.name = name;
    }
    for (TypedAssembly& box : boxes) box.dtype = tensors_.at(box.assembly.name).dtype;
    return boxes;
  }

  // Megatron-core's own layers name their norms as if linears of Transformer Engine held them;
  // those with latent attention do not.
  MegatronTree tree_of(bool norm_apart) const {
    const bool core = options_.tree == MegatronTree::kCore ? model_.latent.has_value() : norm_apart;
    return core ? MegatronTree::kCore : MegatronTree::kTransformer;
  }

  // They are like the last layer.
  bool later_layers_have_experts() const { return model_.has_experts(model_.layers - 1); }

  // Opens the next file if there is none, or if `bytes` more would make it too large.
  AtomicFile& file_for(std::int64_t bytes) {
    const bool full =
        file_ && file_->size_bytes() > 0 && file_->size_bytes() + bytes > options_.max_file_bytes;
    if (full) file_->commit();
    if (!file_ || full) {
      file_name_ = fmt::format("__0_{}.distcp", files_++);
      file_ = std::make_unique<AtomicFile>(folder_ / file_name_);
    }
    return *file_;
  }

  void begin_box(const TypedAssembly& box, std::optional<TorchWriter>& out) {
    SharedTensor& tensor = tensors_.at(box.assembly.name);
    AtomicFile& file = file_for(box.bytes());
    WrittenBox& written = tensor.boxes[begun_[box.assembly.name]++];
    written.place = {.file = file_name_, .offset = file.size_bytes()};
    out.emplace(file);
    out->tensor(safetensors_name(box.dtype), sizes_of_box(tensor));
  }

  void end_box(const std::string& name, TorchWriter& out) {
    out.commit();
    FilePlace& place = tensors_.at(name).boxes[begun_.at(name) - 1].place;
    place.bytes = file_->size_bytes() - place.offset;
  }

  // What every module has as its state: None, in the list in which Megatron-core wraps an object.
  // They are all at one place.
  void write_empty_state() {
    AtomicFile& file = file_for(0);
    const std::int64_t offset = file.size_bytes();
    TorchWriter out(file);
    out.begin_list();
    out.none();
    out.end_list();
    out.commit();
    empty_state_ = {file_name_, offset, file.size_bytes() - offset};
    const auto add = [&](const std::string& module, const Sizes& part, const Sizes& parts) {
      states_.push_back(fmt::format("{}._extra_state/shard_{}_{}", module, fmt::join(part, "."),
                                    fmt::join(parts, ".")));
    };
    // Of a layer; `part` of `parts` among those that are one tensor with it, or of none.
    const auto add_modules = [&](const std::string& at, const LayerKind& kind, const Sizes& part,
                                 const Sizes& parts) {
      const bool alone = part.empty();
      for (const std::string& module : modules_with_state(model_, kind))
        add(at + module, alone ? Sizes{0} : part, alone ? Sizes{1} : parts);
      for (std::int64_t expert = 0; kind.experts && expert < model_.experts->experts; ++expert) {
        Sizes own = part;
        Sizes all = parts;
        own.push_back(expert);
        all.push_back(model_.experts->experts);
        add(at + "mlp.experts.experts.linear_fc1", own, all);
        add(at + "mlp.experts.experts.linear_fc2", own, all);
      }
    };
    // `stack` has so many layers as these files count them.
    const auto add_layer = [&](const std::string& stack, const PlacedLayer& place,
                               std::int64_t layers, bool attends) {
      const LayerKind kind{.mixer = place.mixer,
                           .mlp = place.mlp,
                           .experts = model_.has_experts(place.layer),
                           .states = model_.has_states(place.layer),
                           .attends_to_encoder = attends};
      if (layers_are_alike(model_))
        return add_modules(stack + ".layers.", kind, {place.local}, {layers});
      add_modules(fmt::format("{}.layers.{}.", stack, place.local), kind, {}, {});
    };
    const bool both = model_.encoder_decoder.has_value();
    if (both) {
      const std::int64_t layers = model_.encoder_decoder->encoder_layers;
      for (std::int64_t layer = 0; layer < layers; ++layer)
        add_layer("encoder", {.local = layer, .layer = layer}, layers, false);
      add("encoder.final_layernorm", {0}, {1});
    }
    const std::string stack = model_.encoder ? "encoder" : "decoder";
    const std::vector<PlacedLayer> layers = megatron_layers(model_, {}, 0, 0);
    for (const PlacedLayer& place : layers) add_layer(stack, place, std::ssize(layers), both);
    add(stack + (model_.state_space ? ".final_norm" : ".final_layernorm"), {0}, {1});
    for (std::int64_t layer = 0; layer < model_.mtp_layers; ++layer) {
      const std::string at = fmt::format("{}layers.{}.", kLaterKeys, layer);
      for (const char* module : {"enorm", "hnorm", "eh_proj", "final_layernorm"})
        add(at + module, {0}, {1});
      add_modules(at + "transformer_layer.", {.experts = later_layers_have_experts()}, {}, {});
    }
    for (const std::string& head : heads_with_state(model_)) add(head, {0}, {1});
  }

  static void put_size(PickleWriter& out, const Sizes& sizes) {
    out.global("torch", "Size");
    out.begin_tuple();
    out.integers(sizes);
    out.end_tuple();
    out.call();
  }

  // The sizes of a box, of a whole tensor, and where a box begins in it.
  static Sizes sizes_of_box(const SharedTensor& tensor) {
    return behind(Sizes(tensor.boxes.front().start.size(), 1), tensor.shape);
  }
  static Sizes sizes_of(const SharedTensor& tensor) {
    return behind(tensor.counts(), tensor.shape);
  }
  static Sizes start_of(const SharedTensor& tensor, const WrittenBox& box) {
    Sizes start = box.start;
    start.resize(start.size() + static_cast<std::size_t>(tensor.shape.ndim()), 0);
    return start;
  }
  static Sizes behind(Sizes sizes, const Shape& shape) {
    sizes.insert(sizes.end(), shape.sizes().begin(), shape.sizes().end());
    return sizes;
  }

  // torch's TensorProperties: dtype, layout, requires_grad, memory format, pinned. Later versions
  // have strides too, and read these five.
  static void put_properties(PickleWriter& out, DType dtype) {
    out.begin_object_of_state(kMetadataModule, "TensorProperties");
    out.begin_tuple();
    out.global("torch", dtype == DType::kBF16  ? "bfloat16"
                        : dtype == DType::kF16 ? "float16"
                        : dtype == DType::kF64 ? "float64"
                                               : "float32");
    out.global("torch.serialization", "_get_layout");
    out.begin_tuple();
    out.text("torch.strided");
    out.end_tuple();
    out.call();
    out.boolean(false);
    out.global(kMetadataModule, "_MEM_FORMAT_ENCODING");
    out.integers(Sizes{0});  // contiguous
    out.call();
    out.boolean(false);
    out.end_tuple();
    out.end_object_of_state();
  }

  void put_tensor(PickleWriter& out, const SharedTensor& tensor) const {
    out.begin_object(kMetadataModule, "TensorStorageMetadata");
    out.text("properties");
    put_properties(out, tensor.dtype);
    out.text("size");
    put_size(out, sizes_of(tensor));
    out.text("chunks");
    out.begin_list();
    for (const WrittenBox& box : tensor.boxes) {
      out.begin_object(kMetadataModule, "ChunkStorageMetadata");
      out.text("offsets");
      put_size(out, start_of(tensor, box));
      out.text("sizes");
      put_size(out, sizes_of_box(tensor));
      out.end_object();
    }
    out.end_list();
    out.end_object();
  }

  // A key and a value of storage_data. `start`: null for an object that is no tensor.
  static void put_place(PickleWriter& out, const std::string& name, const Sizes* start,
                        std::int64_t index, const FilePlace& place) {
    out.begin_object(kMetadataModule, "MetadataIndex");
    out.text("fqn");
    out.text(name);
    if (start != nullptr) {
      out.text("offset");
      put_size(out, *start);
    }
    out.text("index");
    start != nullptr ? out.integer(index) : out.none();
    out.end_object();
    out.begin_object("torch.distributed.checkpoint.filesystem", "_StorageInfo");
    out.text("relative_path");
    out.text(place.file);
    out.text("offset");
    out.integer(place.offset);
    out.text("length");
    out.integer(place.bytes);
    out.end_object();
  }

  void write_metadata() const {
    PickleWriter out;
    out.begin_object(kMetadataModule, "Metadata");
    out.text("state_dict_metadata");
    out.begin_dict();
    for (const auto& [name, tensor] : tensors_) {
      out.text(name);
      put_tensor(out, tensor);
    }
    for (const std::string& name : states_) {
      out.text(name);
      out.begin_object(kMetadataModule, "BytesStorageMetadata");
      out.end_object();
    }
    out.end_dict();
    out.text("planner_data");
    out.none();
    out.text("storage_data");
    out.begin_dict();
    for (const auto& [name, tensor] : tensors_) {
      for (std::size_t i = 0; i < tensor.boxes.size(); ++i) {
        const Sizes start = start_of(tensor, tensor.boxes[i]);
        put_place(out, name, &start, static_cast<std::int64_t>(i), tensor.boxes[i].place);
      }
    }
    for (const std::string& name : states_) put_place(out, name, nullptr, 0, empty_state_);
    out.end_dict();
    out.end_object();
    write_text_file(folder_ / kTorchDistMetadata, out.finished());
  }

  void write_common() const {
    TorchWriter out(folder_ / kTorchDistCommon);
    out.begin_dict();
    out.text(kMegatronArguments);
    write_megatron_namespace(options_.arguments_of(model_), out);
    out.text("checkpoint_version");
    out.number(options_.layout.version);
    out.text("iteration");
    out.integer(options_.iteration);
    out.end_dict();
    out.commit();
  }

  const fs::path& folder_;
  const ModelConfig& model_;
  const MegatronWriteOptions& options_;
  std::map<std::string, SharedTensor> tensors_;
  std::map<std::string, std::size_t> begun_;   // boxes, by the name of their tensor
  std::map<std::string, std::string> copies_;  // other names, which are at the same places
  std::vector<std::string> states_;
  FilePlace empty_state_;
  std::unique_ptr<AtomicFile> file_;
  std::string file_name_;
  int files_ = 0;
};

}  // namespace

void check_torch_dist_holds(const ModelConfig& model, const std::string& where) {
  if (!model.embedding_norm) return;
  throw Error(Fault::kData,
              "{}: has a norm after the embedding, which Megatron-core's models do not store in "
              "torch_dist; wanted --ckpt-format torch",
              where);
}

void write_torch_dist(const fs::path& folder, TensorSource& source, const ModelConfig& model,
                      const MegatronWriteOptions& options) {
  check_torch_dist_holds(model, source.where());
  DistFolder(folder, model, options).write(source);
}

}  // namespace piton
