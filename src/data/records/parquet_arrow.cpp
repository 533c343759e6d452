// Reads Parquet with Apache Arrow; the only file that includes it.
#include <arrow/api.h>
#include <arrow/io/api.h>
#include <parquet/arrow/reader.h>
#include <parquet/exception.h>
#include <parquet/file_reader.h>
#include <parquet/properties.h>

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "data/records/block_reader.h"
#include "data/records/parquet_rows.h"

namespace piton {
namespace {

// Largest number of rows in a block; fewer if the average row is large.
constexpr std::int64_t kRows = 256;
constexpr std::int64_t kBlockBytes = std::int64_t{8} << 20;

class ArrowColumnReader final : public ColumnReader {
 public:
  explicit ArrowColumnReader(const std::string& path) : path_(path) {
    guard([&] { open_file(); });
  }

  std::vector<std::string> columns() const override { return schema_->field_names(); }

  bool holds_text(const std::string& column) const override {
    return is_text(schema_->GetFieldByName(column)->type()->id());
  }

  bool next(const Wanted& wanted, RecordBlock& block) override {
    bool more = false;
    guard([&] { more = read(wanted, block); });
    return more;
  }

  double share_read() const override {
    return row_ >= rows_ ? 1 : static_cast<double>(row_) / static_cast<double>(rows_);
  }

  std::vector<nlohmann::json> rows() {
    std::vector<nlohmann::json> rows;
    guard([&] {
      std::vector<int> groups, leaves;
      for (int i = 0; i < reader_->num_row_groups(); ++i) groups.push_back(i);
      const int count = reader_->parquet_reader()->metadata()->schema()->num_columns();
      for (int i = 0; i < count; ++i) leaves.push_back(i);
      batches_ = check(reader_->GetRecordBatchReader(groups, leaves));
      while (true) {
        std::shared_ptr<arrow::RecordBatch> batch;
        check(batches_->ReadNext(&batch));
        if (batch == nullptr || batch->num_rows() == 0) return;
        for (std::int64_t row = 0; row < batch->num_rows(); ++row, ++row_) {
          nlohmann::json& object = rows.emplace_back(nlohmann::json::object());
          for (int i = 0; i < batch->num_columns(); ++i)
            object[batch->column_name(i)] =
                json_of<nlohmann::json>(*batch->column(i), row, batch->column_name(i));
        }
      }
    });
    return rows;
  }

 private:
  template <typename Json, typename List>
  Json list_of(const arrow::Array& column, std::int64_t row, const std::string& name) const {
    const auto& list = static_cast<const List&>(column);
    Json out = Json::array();
    for (std::int64_t i = 0; i < list.value_length(row); ++i)
      out.push_back(json_of<Json>(*list.values(), list.value_offset(row) + i, name));
    return out;
  }

  template <typename Json>
  Json json_of(const arrow::Array& column, std::int64_t row, const std::string& name) const {
    using arrow::Type;
    if (column.IsNull(row)) return nullptr;
    switch (column.type_id()) {
      case Type::STRING:
      case Type::BINARY:
      case Type::LARGE_STRING:
      case Type::LARGE_BINARY:
        return std::string(text_of(column, row));
      case Type::BOOL:
        return static_cast<const arrow::BooleanArray&>(column).Value(row);
      case Type::INT8:
        return static_cast<const arrow::Int8Array&>(column).Value(row);
      case Type::UINT8:
        return static_cast<const arrow::UInt8Array&>(column).Value(row);
      case Type::INT16:
        return static_cast<const arrow::Int16Array&>(column).Value(row);
      case Type::INT32:
        return static_cast<const arrow::Int32Array&>(column).Value(row);
      case Type::INT64:
        return static_cast<const arrow::Int64Array&>(column).Value(row);
      case Type::FLOAT:
        return static_cast<const arrow::FloatArray&>(column).Value(row);
      case Type::DOUBLE:
        return static_cast<const arrow::DoubleArray&>(column).Value(row);
      case Type::LIST:
        return list_of<Json, arrow::ListArray>(column, row, name);
      case Type::LARGE_LIST:
        return list_of<Json, arrow::LargeListArray>(column, row, name);
      case Type::STRUCT: {
        const auto& parts = static_cast<const arrow::StructArray&>(column);
        Json object = Json::object();
        for (int i = 0; i < parts.num_fields(); ++i) {
          if (drops_nulls_ && parts.field(i)->IsNull(row)) continue;
          const std::string& part = parts.struct_type()->field(i)->name();
          object[part] = json_of<Json>(*parts.field(i), row, name);
        }
        return object;
      }
      default:
        throw Error(Fault::kData,
                    "{}: column \"{}\" holds {}, wanted texts, numbers, booleans, lists or structs",
                    path_, name, column.type()->ToString());
    }
  }

  void open_file() {
    auto file = check(arrow::io::ReadableFile::Open(path_));
    parquet::ReaderProperties properties;
    // Read pages on demand, not whole column chunks, which may be gigabytes.
    properties.enable_buffered_stream();
    parquet::ArrowReaderProperties arrow_properties;
    arrow_properties.set_pre_buffer(false);
    parquet::arrow::FileReaderBuilder builder;
    check(builder.Open(std::move(file), properties));
    builder.properties(arrow_properties);
    reader_ = check(builder.Build());
    std::shared_ptr<arrow::Schema> schema;
    check(reader_->GetSchema(&schema));
    schema_ = std::move(schema);
    rows_ = reader_->parquet_reader()->metadata()->num_rows();
  }

  bool read(const Wanted& wanted, RecordBlock& block) {
    if (batches_ == nullptr) open(wanted);
    std::shared_ptr<arrow::RecordBatch> batch;
    check(batches_->ReadNext(&batch));
    if (batch == nullptr || batch->num_rows() == 0) return false;
    block.first_line = row_;
    block.first_byte = row_;
    std::vector<std::shared_ptr<arrow::Array>> columns;
    for (const std::string& key : wanted.keys) columns.push_back(batch->GetColumnByName(key));
    for (std::int64_t row = 0; row < batch->num_rows(); ++row) {
      const std::size_t begin = block.bytes.size();
      const std::string fault = add_row(wanted, columns, row, block);
      if (fault.empty()) continue;
      block.bytes.resize(begin);
      block.ends.resize((static_cast<std::size_t>(row) + 1) * wanted.keys.size(), begin);
      std::fill(block.ends.end() - std::ssize(wanted.keys), block.ends.end(), begin);
      block.bad_rows.emplace_back(static_cast<std::size_t>(row), fault);
    }
    row_ += batch->num_rows();
    block.end_byte = row_;
    block.ends_file = row_ >= rows_;
    return true;
  }

  // Appends the values of a row. Returns why it cannot be used; "": it can. Then its entries in the
  // block are to be undone.
  std::string add_row(const Wanted& wanted,
                      const std::vector<std::shared_ptr<arrow::Array>>& columns, std::int64_t row,
                      RecordBlock& block) {
    std::int64_t bytes = 0;
    for (std::size_t i = 0; i < columns.size(); ++i) {
      const arrow::Array& column = *columns[i];
      if (column.IsNull(row)) {
        if (i < wanted.required) return "the value is null";
      } else if (is_text(column.type_id())) {
        const std::string_view text = text_of(column, row);
        bytes += std::ssize(text);
        if (bytes <= wanted.max_record_bytes) block.bytes.append(text);
      } else {
        try {
          const std::string json =
              json_of<nlohmann::ordered_json>(column, row, wanted.keys[i]).dump();
          bytes += std::ssize(json);
          if (bytes <= wanted.max_record_bytes) block.bytes.append(json);
        } catch (const nlohmann::json::exception&) {
          return fmt::format("column \"{}\" holds text that is not UTF-8", wanted.keys[i]);
        }
      }
      block.ends.push_back(block.bytes.size());
    }
    if (bytes <= wanted.max_record_bytes) return "";
    return fmt::format("the row has {} bytes of text, --max-record-bytes allows {}", bytes,
                       wanted.max_record_bytes);
  }

  void open(const Wanted& wanted) {
    drops_nulls_ = wanted.any_type;
    std::vector<int> groups, leaves;
    for (int i = 0; i < reader_->num_row_groups(); ++i) groups.push_back(i);
    for (const std::string& key : wanted.keys) {
      const auto type = schema_->GetFieldByName(key)->type();
      if (!wanted.any_type && !is_text(type->id())) {
        throw Error(Fault::kData,
                    "{}: column \"{}\" holds {}, wanted text; choose another with --json-keys",
                    path_, key, type->ToString());
      }
      // Leaves include the parts of nested columns.
      const auto* columns = reader_->parquet_reader()->metadata()->schema();
      for (int i = 0; i < columns->num_columns(); ++i) {
        if (columns->Column(i)->path()->ToDotVector().at(0) == key) leaves.push_back(i);
      }
    }
    const auto metadata = reader_->parquet_reader()->metadata();
    std::int64_t row_bytes = 1;  // the largest average of a row group
    for (int i = 0; i < metadata->num_row_groups(); ++i) {
      const auto group = metadata->RowGroup(i);
      std::int64_t bytes = 0;
      for (const int leaf : leaves) bytes += group->ColumnChunk(leaf)->total_uncompressed_size();
      if (group->num_rows() > 0) row_bytes = std::max(row_bytes, bytes / group->num_rows());
    }
    reader_->set_batch_size(std::clamp<std::int64_t>(kBlockBytes / row_bytes, 1, kRows));
    batches_ = check(reader_->GetRecordBatchReader(groups, leaves));
  }

  static bool is_text(arrow::Type::type id) {
    return id == arrow::Type::STRING || id == arrow::Type::LARGE_STRING ||
           id == arrow::Type::BINARY || id == arrow::Type::LARGE_BINARY;
  }

  static std::string_view text_of(const arrow::Array& column, std::int64_t row) {
    switch (column.type_id()) {
      case arrow::Type::LARGE_STRING:
      case arrow::Type::LARGE_BINARY:
        return static_cast<const arrow::LargeBinaryArray&>(column).GetView(row);
      default:
        return static_cast<const arrow::BinaryArray&>(column).GetView(row);
    }
  }

  [[noreturn]] void refuse(std::string reason) const {
    std::replace(reason.begin(), reason.end(), '\n', ' ');
    throw Error(Fault::kData, "{}: row {}: cannot be read as Parquet: {}; fetch the file again",
                path_, row_, reason);
  }

  void check(const arrow::Status& status) const {
    if (!status.ok()) refuse(status.ToString());
  }

  // Code below Arrow's own interface, especially for metadata, throws where Arrow returns a status.
  template <typename Work>
  void guard(const Work& work) const {
    try {
      work();
    } catch (const parquet::ParquetException& exception) {
      refuse(exception.what());
    }
  }

  template <typename T>
  T check(arrow::Result<T> result) const {
    check(result.status());
    return std::move(result).ValueUnsafe();
  }

  std::string path_;
  std::unique_ptr<parquet::arrow::FileReader> reader_;
  std::shared_ptr<arrow::Schema> schema_;
  std::shared_ptr<arrow::RecordBatchReader> batches_;
  std::int64_t rows_ = 0;
  std::int64_t row_ = 0;
  bool drops_nulls_ = false;  // fields of structs that are null: which other rows alone have
};

}  // namespace

bool can_read_parquet() { return true; }

std::unique_ptr<ColumnReader> open_parquet(const std::string& path) {
  return std::make_unique<ArrowColumnReader>(path);
}

std::vector<nlohmann::json> read_parquet_rows(const std::string& path) {
  return ArrowColumnReader(path).rows();
}

}  // namespace piton
