// cmforge sign: a detached signature beside a file, or beside every shard of a set.
#include <cstdio>

#include "cli/command.h"
#include "cli/signals.h"
#include "cmf/file.h"
#include "cmf/signature.h"

namespace cmforge::cli {
namespace {

// A set of shards is authentic only when all of it is signed.
Result<std::vector<std::string>> FilesToSign(const std::string& path) {
  if (std::filesystem::path(path).extension() != ".cmf") return std::vector<std::string>{path};
  NameMappedFile(path);
  CMF_TRY(const cmf::File file, cmf::File::Open(path));
  std::vector<std::string> files;
  for (const cmf::Part& part : file.parts()) files.push_back(part.path);
  return files;
}

Result<int> Sign(const Cli& cli, const std::string& path, const std::string& key) {
  CMF_TRY(const std::vector<std::string> files, FilesToSign(path));
  std::error_code ignored;
  const bool is_new_key = !std::filesystem::exists(key, ignored);
  Json json = {{"public_key", ""}, {"key_created", is_new_key}, {"signatures", Json::array()}};
  for (const std::string& file : files) {
    CMF_TRY(const cmf::Signature signature, cmf::SignFile(file, key, cli.Control()));
    json["public_key"] = signature.public_key;
    json["signatures"].push_back({{"file", file},
                                  {"signature", cmf::SignaturePath(file).string()},
                                  {"sha256", signature.sha256},
                                  {"sig", signature.sig}});
  }
  if (cli.common.json) {
    PrintJson(DumpJson(json));
    return kDone;
  }
  if (cli.common.verbosity < 0) return kDone;
  if (is_new_key)
    fmt::print("{}: a new private key, readable by you alone: keep it, and keep it to yourself\n", key);
  for (const Json& one : json["signatures"]) fmt::print("{}\n", one["signature"].get<std::string>());
  const auto public_key = json["public_key"].get<std::string>();
  fmt::print("public key {}\nothers check it with `cmforge verify {} --public-key {}`\n", public_key, path,
             public_key);
  return kDone;
}

}  // namespace

void AddSign(Cli& cli) {
  auto path = std::make_shared<std::string>();
  auto key = std::make_shared<std::string>();
  CLI::App* command = cli.Add("sign", "Sign a file; its signature goes to FILE.sig",
                              "cmforge sign model.cmf --key ~/.cmforge/signing.key");
  command->add_option("FILE", *path, "The file to sign; any shard of a set signs all of them")->required();
  command
      ->add_option("--key", *key, "Private key: 64 hex digits in a file, made (mode 0600) if it is not there")
      ->required();
  command->callback([&cli, path, key] { cli.action = [&cli, path, key] { return Sign(cli, *path, *key); }; });
}

}  // namespace cmforge::cli
