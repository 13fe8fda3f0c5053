// Files that are wrong: the exit code says so, the one line on stderr names the file and what to do.
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>

#include "cli/program.h"

namespace cmforge {
namespace {

namespace fs = std::filesystem;

class BadInput : public CliTest {
 protected:
  /// A copy of the repository's model (weights linked) whose `file` holds `text`.
  std::string ModelWith(const std::string& file, const std::string& text) {
    const fs::path from = fs::path(CMFORGE_SOURCE_DIR) / "models" / "tiny-qwen3", to = folder_ / "model";
    fs::remove_all(to);
    fs::create_directories(to);
    for (const auto& entry : fs::directory_iterator(from)) {
      if (entry.path().filename() != file)
        fs::create_symlink(fs::absolute(entry.path()), to / entry.path().filename());
    }
    Write(to / file, text);
    return to.string();
  }
  std::string ConfigWith(const std::string& key, const Json& value) {
    Json config =
        ParseJson(Slurp(fs::path(CMFORGE_SOURCE_DIR) / "models" / "tiny-qwen3" / "config.json"), "config")
            .value();
    config[key] = value;
    return ModelWith("config.json", DumpJson(config));
  }
  static void Write(const fs::path& path, const std::string& text) {
    std::ofstream(path, std::ios::binary) << text;
  }

  /// One line that begins with the program's name and `file`, and no output.
  static void ExpectBlames(const Ran& ran, int status, const std::string& file) {
    EXPECT_EQ(ran.status, status) << ran.err;
    EXPECT_EQ(ran.out, "");
    EXPECT_NE(ran.err.find("cmforge: error: " + file), std::string::npos) << ran.err;
    const size_t error = ran.err.find("cmforge: error: ");
    EXPECT_EQ(std::count(ran.err.begin() + static_cast<long>(error), ran.err.end(), '\n'), 1) << ran.err;
  }
};

TEST_F(BadInput, AbsurdNumbersInAConfigAreRefused) {
  for (const auto& [key, value] : std::vector<std::pair<std::string, Json>>{{"rope_theta", 1e300},
                                                                            {"rope_theta", 0},
                                                                            {"rope_theta", -10000},
                                                                            {"rms_norm_eps", 1e300},
                                                                            {"rms_norm_eps", 0},
                                                                            {"rms_norm_eps", -1e-6},
                                                                            {"rms_norm_eps", 1e-300},
                                                                            {"num_loops", 1000000}}) {
    const std::string model = ConfigWith(key, value);
    const Ran ran = Run({"convert", "--model", model, "--output", Path("out.cmf")});
    ExpectBlames(ran, 4, model + "/config.json: ");
    EXPECT_NE(ran.err.find(key), std::string::npos) << ran.err;
    EXPECT_FALSE(fs::exists(Path("out.cmf")));
    EXPECT_EQ(Run({"logits", model, "--tokens", "1"}).status, 4);
  }
}

TEST_F(BadInput, ATokenizerThatIsEmptyOrBrokenIsNotNoTokenizer) {
  for (const std::string text :
       {"", " \n\t\r\n", "{\"version\": \"1.0\", ", "[]", "version https://git-lfs.github.com/spec/"}) {
    const std::string model = ModelWith("tokenizer.json", text);
    ExpectBlames(Run({"convert", "--model", model, "--output", Path("out.cmf")}), 4,
                 model + "/tokenizer.json");
    EXPECT_FALSE(fs::exists(Path("out.cmf")));
    ExpectBlames(Run({"run", model, "--prompt", "x", "-n", "1"}), 4, model + "/tokenizer.json");
    ExpectBlames(Run({"tokenize", model + "/tokenizer.json", "--text", "x"}), 4, model + "/tokenizer.json");
  }
  // Beside a file without one, too.
  const std::string model = ModelWith("other", "");
  ASSERT_EQ(Run({"convert", "-q", "--model", model, "--no-tokenizer", "--output", Path("bare.cmf")}).status,
            0);
  Write(Path("tokenizer.json"), "\n");
  ExpectBlames(Run({"tokenize", Path("bare.cmf"), "--text", "x"}), 4, Path("tokenizer.json"));
}

TEST_F(BadInput, TextThatIsNotUtf8IsTheFilesFault) {
  const std::string bad = Path("bad");
  Write(bad, "good \xC3\xA9 then \xE9");
  for (const std::vector<std::string>& command : {std::vector<std::string>{"tokenize", "--file", bad},
                                                  {"ppl", "--file", bad},
                                                  {"template", "--messages", bad},
                                                  {"jinja", "--template", bad},
                                                  {"generate", "--tokens", "@" + bad},
                                                  {"run", "--prompt", "x", "--tools", bad}}) {
    ExpectBlames(Run(command), 4, bad + ": ");
  }
  const Ran ran = Run({"tokenize"}, "\xFF");
  ExpectBlames(ran, 4, "standard input: byte 0 (0xff)");
  EXPECT_NE(Run({"tokenize", "--file", bad}).err.find("byte 13 (0xe9)"), std::string::npos);
}

TEST_F(BadInput, JsonOfAnotherShapeIsTheFilesFault) {
  Write(Path("m.json"), R"([{"role":"user","content":"Hi"}])");
  Write(Path("t.jinja"), "{{ x }}");
  for (const std::string text : {"\"text\"", "{\"a\": 1}", "{\"messages\": 3}", "3"}) {
    Write(Path("wrong"), text);
    ExpectBlames(Run({"template", "--messages", Path("wrong")}), 4, Path("wrong") + ": ");
    ExpectBlames(Run({"template", "--messages", Path("m.json"), "--tools", Path("wrong")}), 4,
                 Path("wrong") + ": ");
  }
  for (const std::string text : {"\"text\"", "[]", "3"}) {
    Write(Path("wrong"), text);
    ExpectBlames(Run({"jinja", "--template", Path("t.jinja"), "--context", Path("wrong")}), 4,
                 Path("wrong") + ": ");
  }
}

TEST_F(BadInput, TemplateErrorsNameTheTemplateAndARemedy) {
  Write(Path("m.json"), R"([{"role":"user","content":"Hi"}])");
  Write(Path("c.json"), "{}");
  for (const auto& [source, fact] : std::vector<std::pair<std::string, std::string>>{
           {"{{ raise_exception('roles must alternate') }}", "roles must alternate: "},
           {"\n{{ nothing.at.all }}", ":2: 'nothing' is undefined: "},
           {"{% if %}", ":1: expected an expression, got '%}': "},
           {"{{ messages.append(1) }}{{ [].append(1) }}", ":1: "},
           {"{{ 1 + 'a' }}", ":1: TypeError"}}) {
    Write(Path("t.jinja"), source);
    for (const std::vector<std::string>& command :
         {std::vector<std::string>{"template", "--messages", Path("m.json"), "--template", Path("t.jinja")},
          {"jinja", "--template", Path("t.jinja"), "--context", Path("c.json")}}) {
      if (command[0] == "jinja" && source.find("raise") != source.npos)
        continue;  // only chat templates have it
      const Ran ran = Run(command);
      ExpectBlames(ran, 4, Path("t.jinja") + ":");
      EXPECT_NE(ran.err.find(fact), std::string::npos) << ran.err;
      EXPECT_NE(ran.err.find(source.find("raise") != source.npos ? "change that" : "correct the template"),
                std::string::npos)
          << ran.err;
    }
  }
}

TEST_F(BadInput, PipesAreRefusedWithoutWaiting) {
  const std::string pipe = Path("pipe.cmf"), tensors = Path("pipe.safetensors");
  for (const std::string& path : {pipe, tensors}) ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
  for (const std::string& path : {pipe, tensors, std::string("/dev/null")}) {
    for (const std::vector<std::string>& command : {std::vector<std::string>{"info", path},
                                                    {"verify", path},
                                                    {"logits", path, "--tokens", "1"},
                                                    {"dequant", path, "--all"},
                                                    {"diff", path, path},
                                                    {"sign", path, "--key", Path("key")},
                                                    {"mask", "remove", path, "x"},
                                                    {"tokenize", "--file", path},
                                                    {"ppl", "--file", path},
                                                    {"generate", "--tokens", "@" + path},
                                                    {"jinja", "--template", path},
                                                    {"run", "--prompt", "x", "--tools", path}}) {
      const Ran ran = Run(command);
      ExpectBlames(ran, 2, path + ": not a regular file: name a file");
    }
  }
  for (const char* name : {"config.json", "model.safetensors", "tokenizer.json"}) {
    const std::string model = ModelWith(name, "");
    fs::remove(fs::path(model) / name);
    ASSERT_EQ(::mkfifo((model + "/" + name).c_str(), 0600), 0);
    for (const std::vector<std::string>& command : {std::vector<std::string>{"info", model},
                                                    {"verify", model},
                                                    {"run", model, "--prompt", "x"},
                                                    {"convert", "--model", model, "-o", Path("o.cmf")}}) {
      ExpectBlames(Run(command), 2, model + "/" + name + ": not a regular file: name a file");
    }
  }
}

TEST_F(BadInput, WeightsThatAreNoNumbersGiveNoAnswer) {
  const fs::path from = fs::path(CMFORGE_SOURCE_DIR) / "models" / "tiny-qwen3" / "model.safetensors";
  const std::string good = Slurp(from);
  uint64_t length = 0;
  std::memcpy(&length, good.data(), sizeof(length));
  const Json header = ParseJson(good.substr(8, length), "header").value();
  for (const auto& [tensor, number] : std::vector<std::pair<std::string, uint16_t>>{
           {"model.layers.0.mlp.up_proj.weight", 0x7FC0},  // NaN of bf16
           {"model.layers.1.mlp.down_proj.weight", 0x7FC0},
           {"model.norm.weight", 0xFFC0},
           {"model.norm.weight", 0x7F80}}) {  // infinity
    ASSERT_EQ(header[tensor]["dtype"], "BF16");
    std::string bytes = good;
    std::memcpy(bytes.data() + 8 + length + header[tensor]["data_offsets"][0].get<uint64_t>(), &number, 2);
    const std::string model = ModelWith("model.safetensors", bytes);
    Write(Path("text"), "Once upon a time there was a model.");
    for (const std::vector<std::string>& command :
         {std::vector<std::string>{"logits", model, "--tokens", "1,2"},
          {"logits", model, "--tokens", "1,2", "--compute", "exact", "--all"},
          {"generate", model, "--tokens", "1,2", "-n", "3", "--json"},
          {"run", model, "--prompt", "Hello", "-n", "3", "--greedy"},
          {"ppl", model, "--file", Path("text")}}) {
      ExpectBlames(Run(command), 4, model + ": the logits are not numbers: ");
    }
    const Ran chat = Run({"chat", model, "--greedy"}, "Hello\n");
    EXPECT_NE(chat.err.find("the logits are not numbers"), std::string::npos) << chat.out << chat.err;
  }
}

TEST_F(BadInput, WhatIsWrongInAFileComesWithARemedy) {
  const fs::path from = fs::path(CMFORGE_TEST_DATA) / "engine" / "llama", model = folder_ / "small";
  fs::create_directories(model);
  const std::string weights = Slurp(from / "model.safetensors"), config = Slurp(from / "config.json");
  uint64_t length = 0;
  std::memcpy(&length, weights.data(), sizeof(length));
  const Json header = ParseJson(weights.substr(8, length), "header").value();
  const std::string tensor = "model.norm.weight";
  const auto packed = [&](const std::string& text) {
    const uint64_t size = text.size();
    return std::string(reinterpret_cast<const char*>(&size), 8) + text + weights.substr(8 + length);
  };
  const auto with = [&](const std::string& key, const Json& value) {
    Json changed = header;
    if (value.is_null()) {
      changed[tensor].erase(key);
    } else {
      changed[tensor][key] = value;
    }
    return packed(DumpJson(changed));
  };
  const auto expect = [&](const std::string& file, const std::string& remedy) {
    for (const std::vector<std::string>& command :
         {std::vector<std::string>{"logits", file, "--tokens", "1"}, {"verify", file}}) {
      const Ran ran = Run(command);
      EXPECT_TRUE(ran.status == 4 || ran.status == 5) << ran.status << ran.err;
      EXPECT_NE(ran.err.find("cmforge: error: " + file), std::string::npos) << ran.err;
      EXPECT_TRUE(ran.err.ends_with(remedy + "\n")) << ran.err;
      EXPECT_EQ(ran.err.find(remedy), ran.err.rfind(remedy)) << "said twice: " << ran.err;
    }
  };
  Write(model / "config.json", config);
  for (const std::string& bad :
       {std::string(), weights.substr(0, 3), weights.substr(0, 200), weights.substr(0, weights.size() - 10),
        weights + "xx", packed("{hello"), packed("[]"), with("data_offsets", nullptr), with("shape", nullptr),
        with("dtype", nullptr), with("shape", "x"), with("shape", Json::array({7})), with("dtype", 7),
        with("data_offsets", Json::array({5, 1}))}) {
    Write(model / "model.safetensors", bad);
    expect(model.string(), ": download the file again");
  }
  Write(model / "model.safetensors", with("dtype", "Q3"));
  expect(model.string(), ": save the model in F32, F16 or BF16");
  const auto shape = header["model.layers.0.self_attn.o_proj.weight"]["shape"];
  Json reshaped = header;
  reshaped["model.layers.0.self_attn.o_proj.weight"]["shape"] =
      Json::array({shape[0].get<int>() * 2, shape[1].get<int>() / 2});
  Write(model / "model.safetensors", packed(DumpJson(reshaped)));
  expect(model.string(), ": fetch the checkpoint again");
  fs::remove(model / "model.safetensors");
  for (const char* index : {"{", "[]", "{}", R"({"weight_map":{}})", R"({"weight_map":{"a":"../b"}})"}) {
    Write(model / "model.safetensors.index.json", index);
    expect(model.string(), ": download the index again");
  }
  fs::remove(model / "model.safetensors.index.json");
  Write(model / "model.safetensors", weights);
  for (const char* bad : {"", "{", "[]", "3"}) {
    Write(model / "config.json", bad);
    expect(model.string(), ": correct it, or fetch the file again");
  }
  for (const auto& [key, value] : std::vector<std::pair<std::string, Json>>{
           {"hidden_act", "wave"}, {"rope_scaling", {{"rope_type", "spiral"}, {"factor", 2.0}}}}) {
    Json changed = ParseJson(config, "config").value();
    changed[key] = value;
    Write(model / "config.json", DumpJson(changed));
    expect(model.string(), ": correct it, or take another model");
  }
  Write(model / "config.json", config);
  const std::string file = Path("m.cmf");
  ASSERT_EQ(Run({"convert", "-q", "--model", model.string(), "--output", file}).status, 0);
  const std::string good = Slurp(file);
  std::string unnamed = good;
  unnamed.replace(unnamed.find("\"arch\""), 6, "\"xrch\"");
  for (const std::string& bad : {good.substr(0, 50), good.substr(0, good.size() - 10), unnamed}) {
    Write(file, bad);
    expect(file, ": copy the file again, or convert the model again");
  }
  Write(file, "This is a text, and long enough to be anything at all: " + std::string(200, '.'));
  expect(file, ": name a .cmf file, a Hugging Face folder or a Core ML package");
  std::string flipped = good;
  flipped.replace(flipped.find("\"cmf\""), 5, "\"cmg\"");
  Write(file, flipped);
  const Ran ran = Run({"verify", file});
  EXPECT_EQ(ran.status, 1);
  EXPECT_NE(ran.out.find("these bytes were changed: copy the file again\n"), std::string::npos) << ran.out;
}

TEST_F(BadInput, IsReportedOnce) {
  const std::string model = ConfigWith("bos_token_id", "one");
  const Ran info = Run({"info", model});
  EXPECT_EQ(info.status, 0) << info.err;
  EXPECT_EQ(info.err.find("text_config"), std::string::npos) << info.err;
  EXPECT_EQ(info.err.find("bos_token_id"), info.err.rfind("bos_token_id")) << info.err;
  const Ran convert = Run(
      {"convert", "--model", std::string(CMFORGE_TEST_DATA) + "/engine/llama", "--output", Path("out.cmf")});
  EXPECT_EQ(convert.status, 0) << convert.err;
  EXPECT_EQ(std::count(convert.err.begin(), convert.err.end(), '\n'), 1) << convert.err;
}

TEST_F(BadInput, ListsOfTokensHaveNoHoles) {
  for (const std::string tokens : {"1,,2", ",1", "1,", "1, ,2", ",", "@"}) {
    for (const char* command : {"logits", "generate", "detokenize"}) {
      ExpectBlames(Run({command, "--tokens", tokens}), 2, "tokens: ");
    }
  }
  Write(Path("ids"), "1, 2\n3,\n4 5\n");
  EXPECT_EQ(Run({"logits", "--tokens", "@" + Path("ids"), "--top", "1"}).json()["tokens"],
            Json::array({1, 2, 3, 4, 5}));
  const Ran tools = Run({"run", "--prompt", "x", "--tools", "{bad"});
  ExpectBlames(tools, 3, "{bad: cannot open");
  EXPECT_NE(tools.err.find(": --tools takes the name of a JSON file\n"), std::string::npos) << tools.err;
}

TEST_F(BadInput, APlaceThatCannotBeWrittenShowsBeforeTheAnswer) {
  const std::string state = Path("missing") + "/state";
  ExpectBlames(Run({"run", "--prompt", "Once", "-n", "2", "--save-state", state}), 3,
               state + ": cannot create");
  const Ran ran = Run({"run", "--prompt", "Once", "-n", "2", "--save-state", Path("state")});
  EXPECT_EQ(ran.status, 0) << ran.err;
  EXPECT_TRUE(fs::exists(Path("state")));
}

TEST_F(BadInput, FilesThatCannotBeOpenedSayWhatToDo) {
  for (const std::vector<std::string>& command :
       {std::vector<std::string>{"tokenize", "--file", Path("none")},
        {"info", Path("none")},
        {"template", "--messages", Path("none")},
        {"generate", "--tokens", "@" + Path("none")}}) {
    const Ran ran = Run(command);
    ExpectBlames(ran, 3, Path("none") + ": cannot open: no such file or directory: check the path");
  }
  if (geteuid() == 0) return;  // who may read everything
  Write(Path("secret"), "x");
  fs::permissions(Path("secret"), fs::perms::none);
  ExpectBlames(Run({"tokenize", "--file", Path("secret")}), 6,
               Path("secret") + ": cannot open: permission denied: change its permissions");
}

}  // namespace
}  // namespace cmforge
