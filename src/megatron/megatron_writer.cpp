#include "megatron/megatron_writer.h"

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/files.h"
#include "checkpoint/manifest.h"
#include "checkpoint/safetensors.h"
#include "megatron/arguments.h"
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
  for (const char* outer : {"language_model.", "encoder.", "embedding.", "word_embeddings.",
                            "position_embeddings.", "output_layer.", "word_embeddings_for_head."}) {
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
  std::vector<std::pair<std::string, Node>> children;
  std::optional<std::size_t> tensor;

  Node& child(const std::string& name) {
    for (auto& [key, node] : children) {
      if (key == name) return node;
    }
    return children.emplace_back(name, Node{}).second;
  }
};

class RankFile {
 public:
  RankFile(const fs::path& path, TensorSource& source, const MegatronWriteOptions& options)
      : out_(path), source_(source), options_(options) {
    for (const CanonicalTensor& one : source.tensors(TensorKind::kWeight))
      dtypes_[one.name] = one.dtype;
  }

  void write(const ModelConfig& model, int t, int p) {
    out_.begin_dict();
    out_.text("checkpoint_version");
    out_.number(options_.layout.version);
    out_.text("iteration");
    out_.integer(options_.iteration);
    for (int chunk = 0; chunk < options_.layout.chunks; ++chunk) {
      out_.text(options_.layout.chunks > 1 ? fmt::format("model{}", chunk) : std::string("model"));
      write_chunk(megatron_tensors(model, options_.layout, t, p, chunk));
    }
    out_.text(kPitonArguments);
    write_megatron_arguments(model, options_.layout, out_);
    if (options_.arguments) {
      out_.text(kMegatronArguments);
      write_megatron_namespace(model, options_.layout, out_);
    }
    out_.end_dict();
    for (const auto& [assembly, dtype] : order_) {
      assemble(source_, assembly, dtype, [&](std::span<const std::byte> bytes) {
        out_.append(bytes);
        if (options_.wrote) options_.wrote(static_cast<std::int64_t>(bytes.size()));
      });
    }
    out_.commit();
  }

 private:
  void write_chunk(std::vector<MegatronTensor> tensors) {
    Node root;
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      Node* node = &root;
      for (const std::string& part :
           path_of(megatron_name(tensors[i].key, options_.tree), options_.tree))
        node = &node->child(part);
      node->tensor = i;
    }
    write_node(root, tensors);
  }

  void write_node(const Node& node, std::vector<MegatronTensor>& tensors) {
    if (node.tensor) {
      Assembly& assembly = tensors[*node.tensor].assembly;
      const DType dtype = options_.dtype.value_or(dtypes_.at(assembly.parts.front().name));
      out_.tensor(safetensors_name(dtype), assembly.shape.sizes());
      order_.emplace_back(std::move(assembly), dtype);
      return;
    }
    out_.begin_dict();
    for (const auto& [key, child] : node.children) {
      out_.text(key);
      write_node(child, tensors);
    }
    out_.end_dict();
  }

  TorchWriter out_;
  TensorSource& source_;
  const MegatronWriteOptions& options_;
  std::map<std::string, DType> dtypes_;            // of the source
  std::vector<std::pair<Assembly, DType>> order_;  // of the file's storages
};

}  // namespace

void write_megatron(const fs::path& folder, TensorSource& source, const ModelConfig& model,
                    const MegatronWriteOptions& options) {
  const MegatronLayout& layout = options.layout;
  for (int p = 0; p < layout.pipeline; ++p) {
    for (int t = 0; t < layout.tensor; ++t) {
      const std::string rank = layout.pipeline > 1 ? fmt::format("mp_rank_{:02}_{:03}", t, p)
                                                   : fmt::format("mp_rank_{:02}", t);
      RankFile(folder / "release" / rank / "model_optim_rng.pt", source, options)
          .write(model, t, p);
    }
  }
  write_text_file(folder / kTrackerName, "release");
}

}  // namespace piton
