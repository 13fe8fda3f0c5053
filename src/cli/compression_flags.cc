// Flags of palettes and scaled integers.
#include "cli/compression_flags.h"

namespace cmforge::cli {
namespace {

/// The one form a part was given.
Result<coreml::WeightForm> FormOf(const char* part, const std::string& lut, const std::string& quant) {
  auto palette = coreml::ParsePaletteForm(lut);
  if (!palette) return Fail(std::move(palette).error().In(fmt::format("--lut-{}", part)));
  auto scaled = coreml::ParseScaledForm(quant);
  if (!scaled) return Fail(std::move(scaled).error().In(fmt::format("--quant-{}", part)));
  if (palette->is_compressed() && scaled->is_compressed()) {
    return Fail(ErrorKind::kUsage,
                fmt::format("--lut-{0} {1} and --quant-{0} {2}: a part has one form: give one of them", part,
                            lut, quant));
  }
  return palette->is_compressed() ? *palette : *scaled;
}

}  // namespace

void CompressionFlags::AddTo(CLI::App* command) {
  const auto palette = [&](const char* flag, std::string& value, const char* what) {
    command
        ->add_option(
            flag, value,
            fmt::format("Palettes for {}: none, or 2, 3, 4, 6 or 8 bits; BITS,GROUP lets GROUP output "
                        "channels share a table (default 8; 0: one table a tensor)",
                        what))
        ->capture_default_str();
  };
  palette("--lut-ffn", lut_ffn, "the decoder's matrices");
  palette("--lut-lmhead", lut_lmhead, "the head");
  palette("--lut-embeddings", lut_embeddings, "the embedding table");
  command
      ->add_option(
          "--lut-method", lut_method,
          "How palettes are fitted: kmeans (least squared error), activation (errors weighed by the "
          "mean square of their input channel and, in the head, by how much their logit moves the answer; "
          "needs --calibrate) or fisher (not there yet)")
      ->check(CLI::IsMember({"kmeans", "activation", "fisher"}))
      ->capture_default_str();
  command->add_option(
      "--calibrate", calibrate,
      "For --lut-method activation: a text, of which the first 4096 tokens are read, or statistics "
      "made by `cmforge calibrate`");
  command
      ->add_option(
          "--lut-ffn-mixed", lut_ffn_mixed,
          "Bits on average over the decoder, above 2 and below 8: the matrices that gain most get the "
          "width above --lut-ffn")
      ->check(CLI::Range(2.0, 8.0));
  const auto scaled = [&](const char* flag, std::string& value, const char* what) {
    command
        ->add_option(
            flag, value,
            fmt::format(
                "Scaled integers for {}, for CPU and GPU only: none, int8 (a scale a channel), int4 or "
                "int4,BLOCK (a scale for BLOCK columns, default 32)",
                what))
        ->capture_default_str();
  };
  scaled("--quant-ffn", quant_ffn, "the decoder's matrices");
  scaled("--quant-lmhead", quant_lmhead, "the head");
  scaled("--quant-embeddings", quant_embeddings, "the embedding table");
}

Result<coreml::Compression> CompressionFlags::Parse() const {
  coreml::Compression out;
  CMF_TRY(out.embeddings, FormOf("embeddings", lut_embeddings, quant_embeddings));
  CMF_TRY(out.ffn, FormOf("ffn", lut_ffn, quant_ffn));
  CMF_TRY(out.lmhead, FormOf("lmhead", lut_lmhead, quant_lmhead));
  out.ffn_mixed = lut_ffn_mixed;
  if (lut_method == "fisher") {
    return Fail(ErrorKind::kUnsupported,
                "--lut-method fisher: needs the trainer, which is not there yet: use activation or kmeans");
  }
  const bool has_palette = out.ffn_mixed || out.ffn.kind == coreml::WeightForm::Kind::kPalette ||
                           out.lmhead.kind == coreml::WeightForm::Kind::kPalette;
  if (lut_method == "activation") {
    out.method = coreml::PaletteMethod::kActivation;
    if (!has_palette)
      return Fail(ErrorKind::kUsage, "--lut-method activation: give --lut-ffn or --lut-lmhead a width");
    if (calibrate.empty()) {
      return Fail(ErrorKind::kUsage,
                  "--lut-method activation: give --calibrate a text, or statistics of `cmforge calibrate`");
    }
  } else if (!calibrate.empty()) {
    return Fail(ErrorKind::kUsage, "--calibrate: only --lut-method activation uses it: leave it out");
  }
  if (auto mixed = coreml::ResolveMixed(out); !mixed)
    return Fail(std::move(mixed).error().In("--lut-ffn-mixed"));
  return out;
}

}  // namespace cmforge::cli
