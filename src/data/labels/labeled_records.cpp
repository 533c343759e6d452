#include "data/labels/labeled_records.h"

#include "base/json.h"
#include "data/records/block_reader.h"
#include "data/records/record_options.h"
#include "data/records/whole_record_parser.h"

namespace piton {

void for_each_labeled(const std::string& file, const RecordFields& fields, bool needs_label,
                      Log& log, const std::function<void(Conversation)>& use) {
  RecordOptions options;
  options.input = {file};
  options.skip_option.clear();
  BlockReader::Rules rules{
      .sample_by = options.sample_by, .optional_columns = fields.optional(), .any_type = true};
  for (const std::string& column : fields.required()) rules.optional_columns.push_back(column);
  BlockReader reader(files_of(options, log), rules, {});
  const auto read = [&](const nlohmann::ordered_json& record) {
    use(read_labeled(fields, record, needs_label));
  };
  for_each_record(reader, options.sample_by, read,
                  [&](const BadRecord& bad) { refuse_bad_record(bad, options); });
}

}  // namespace piton
