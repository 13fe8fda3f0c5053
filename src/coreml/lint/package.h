// A package folder under inspection: its models together, and what lies beside them.
#pragma once

#include "coreml/lint/subject.h"
#include "coreml/package_meta.h"

namespace cmforge::coreml::lint {

struct PackageSubject {
  std::filesystem::path folder;
  PackageMeta meta;
  ModelSubject embeddings, head;
  std::vector<ModelSubject> chunks;
};

/// The keys of meta.yaml as ANEMLL's readers look for them. Fails: kCorrupt for what is no YAML.
Result<void> CheckMetaKeys(const std::string& yaml, Findings& findings);

/// Keys that one map of meta.yaml has twice.
void CheckDoubleKeys(const std::string& yaml, Findings& findings);

/// Names and numbers in meta.yaml against each other, and against the files of the folder.
void CheckMetaNames(const std::filesystem::path& folder, const PackageMeta& meta, const PackageParts& parts,
                    Findings& findings);

/// Configuration and tokenizer files. `vocab`: ids there are, as far as meta.yaml says.
void CheckSideFiles(const std::filesystem::path& folder, std::optional<int64_t> vocab, Findings& findings);

/// The models against the runtime contract and against meta.yaml.
void CheckPackage(const PackageSubject& package, Findings& findings);

}  // namespace cmforge::coreml::lint
