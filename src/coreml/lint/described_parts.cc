// A backend that only describes.
#include "coreml/lint/described_parts.h"

#include <algorithm>

namespace cmforge::coreml::lint {
namespace {

tl::unexpected<Error> NothingRuns() { return Fail(ErrorKind::kInternal, "a described part does not run"); }

class DescribedFunction : public PartFunction {
 public:
  DescribedFunction(std::vector<Port> inputs, std::vector<Port> outputs)
      : inputs_(std::move(inputs)), outputs_(std::move(outputs)) {}

  const std::vector<Port>& inputs() const override { return inputs_; }
  const std::vector<Port>& outputs() const override { return outputs_; }
  Result<void> SetFloats(size_t, std::span<const float>) override { return NothingRuns(); }
  Result<void> SetInts(size_t, std::span<const int32_t>) override { return NothingRuns(); }
  Result<void> Run(PartState*) override { return NothingRuns(); }
  Result<void> GetFloats(size_t, std::span<float>) const override { return NothingRuns(); }

 private:
  std::vector<Port> inputs_, outputs_;
};

class DescribedPart : public Part {
 public:
  explicit DescribedPart(std::shared_ptr<const mil::Package> package) : package_(std::move(package)) {}

  Result<std::unique_ptr<PartFunction>> Function(const std::string& name,
                                                 const std::map<std::string, Shape>& shapes) const override {
    const mil::Model& model = package_->model;
    const std::string wanted = name.empty() ? model.DefaultFunction() : name;
    const auto it = model.program.functions.find(wanted);
    const auto view = model.description.Find(wanted);
    if (it == model.program.functions.end() || !view) {
      return Fail(ErrorKind::kNotFound, fmt::format("{}: no function '{}'", package_->path.string(), wanted));
    }
    std::vector<Port> inputs, outputs;
    for (const mil::NamedType& input : it->second.inputs) {
      if (input.type.is_state()) continue;
      Port port{input.name, input.type.tensor};
      if (const auto shape = shapes.find(input.name); shape != shapes.end()) {
        CMF_CHECK(CheckAllowed(*view, input, shape->second));
        port.type.shape = shape->second;
      }
      inputs.push_back(std::move(port));
    }
    for (const mil::Operation& op : it->second.body.operations) {
      for (const mil::NamedType& output : op.outputs) {
        const auto& names = it->second.body.outputs;
        if (std::find(names.begin(), names.end(), output.name) != names.end())
          outputs.push_back({output.name, output.type.tensor});
      }
    }
    return std::make_unique<DescribedFunction>(std::move(inputs), std::move(outputs));
  }
  Result<std::unique_ptr<PartState>> NewState() const override { return NothingRuns(); }
  std::vector<Port> States() const override {
    std::map<std::string, Port> ports;
    for (const auto& [name, function] : package_->model.program.functions) {
      for (const mil::NamedType& input : function.inputs) {
        if (input.type.is_state()) ports[input.name] = {input.name, input.type.tensor};
      }
    }
    std::vector<Port> out;
    for (auto& [name, port] : ports) out.push_back(std::move(port));
    return out;
  }

 private:
  /// A shape is the program's and, where several are, one of the described ones.
  Result<void> CheckAllowed(const mil::Description::View& view, const mil::NamedType& input,
                            const Shape& shape) const {
    bool allowed = AreCompatible(input.type.tensor, {input.type.tensor.dtype, shape});
    for (const mil::Feature& feature : *view.inputs) {
      const mil::ArrayFeature* array = feature.name == input.name ? feature.array() : nullptr;
      if (!array) continue;
      const auto& shapes = array->enumerated_shapes;
      if (!shapes.empty())
        allowed = allowed && std::find(shapes.begin(), shapes.end(), shape) != shapes.end();
      for (size_t i = 0; i < array->shape_range.size() && i < shape.size(); ++i) {
        const mil::SizeRange& range = array->shape_range[i];
        allowed = allowed && static_cast<uint64_t>(shape[i]) >= range.lower &&
                  (range.upper < 0 || shape[i] <= range.upper);
      }
    }
    if (allowed) return {};
    return Fail(ErrorKind::kCorrupt, fmt::format("{}: input '{}' does not allow {}", package_->path.string(),
                                                 input.name, ShapeText(shape)));
  }

  std::shared_ptr<const mil::Package> package_;
};

class Described : public Backend {
 public:
  explicit Described(std::map<std::filesystem::path, std::shared_ptr<const mil::Package>> packages)
      : packages_(std::move(packages)) {}
  std::string_view name() const override { return "description"; }
  bool rounds_to_f16() const override { return true; }
  Result<std::unique_ptr<Part>> Open(const std::filesystem::path& path) const override {
    const auto it = packages_.find(path);
    if (it == packages_.end())
      return Fail(ErrorKind::kNotFound, fmt::format("{}: not opened", path.string()));
    return std::make_unique<DescribedPart>(it->second);
  }

 private:
  std::map<std::filesystem::path, std::shared_ptr<const mil::Package>> packages_;
};

}  // namespace

std::unique_ptr<Backend> DescribedParts(
    std::map<std::filesystem::path, std::shared_ptr<const mil::Package>> packages) {
  return std::make_unique<Described>(std::move(packages));
}

}  // namespace cmforge::coreml::lint
