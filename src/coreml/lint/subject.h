// A model under inspection, and where findings go.
#pragma once

#include "coreml/function_view.h"
#include "coreml/lint/rules.h"
#include "mil/analysis.h"
#include "mil/package.h"

namespace cmforge::coreml::lint {

struct ModelSubject {
  std::string part;  // file name
  std::shared_ptr<const mil::Package> package;
  std::vector<FunctionView> functions;

  explicit ModelSubject(std::shared_ptr<const mil::Package> opened) : package(std::move(opened)) {
    const std::filesystem::path& path = package->path;
    part = (path.has_filename() ? path : path.parent_path()).filename().string();
    for (const auto& [name, function] : package->model.program.functions)
      functions.emplace_back(name, function);
  }
};

class Findings {
 public:
  explicit Findings(std::vector<Finding>& out) : out_(out) {}

  void Add(const Rule& rule, std::string part, std::string reason) {
    Append(rule, std::move(part), "", "", std::move(reason));
  }
  void Add(const Rule& rule, const ModelSubject& model, std::string reason) {
    Append(rule, model.part, "", "", std::move(reason));
  }
  void Add(const Rule& rule, const ModelSubject& model, const FunctionView& function, std::string reason) {
    Append(rule, model.part, function.name(), "", std::move(reason));
  }
  void Add(const Rule& rule, const ModelSubject& model, const FunctionView& function,
           const mil::Operation& op, std::string reason) {
    Append(rule, model.part, function.name(), mil::OperationLabel(op), std::move(reason));
  }

 private:
  void Append(const Rule& rule, std::string part, std::string function, std::string operation,
              std::string reason) {
    // The message of an error ends with what to do, which is told apart.
    if (const std::string end = fmt::format(": {}", rule.remedy); reason.ends_with(end))
      reason.resize(reason.size() - end.size());
    out_.push_back({rule.severity, std::string(rule.id), std::move(part), std::move(function),
                    std::move(operation), std::move(reason), std::string(rule.remedy)});
  }

  std::vector<Finding>& out_;
};

// The groups of rules, one file each. All but the first two want ordered functions (FunctionView::is_ordered).
void CheckProgram(const ModelSubject& model, Findings& findings);
void CheckWeightFiles(const ModelSubject& model, Findings& findings);
void CheckNumbers(const ModelSubject& model, Findings& findings);
void CheckArithmetic(const ModelSubject& model, Findings& findings);
void CheckStates(const ModelSubject& model, Findings& findings);
void CheckDevices(const ModelSubject& model, Findings& findings);
void CheckWeights(const ModelSubject& model, Findings& findings);

}  // namespace cmforge::coreml::lint
