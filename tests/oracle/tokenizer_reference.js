// Answers of the reference library's binding, one JSON line for each line of standard input:
//   {"text", "special"} -> {"ids"}        {"ids", "skip_special"} -> {"text"}
// node tokenizer_reference.js TOKENIZER.json    (NODE_PATH names the folder that holds the package `tokenizers`)
const lines = require('fs').readFileSync(0, 'utf8').split('\n').filter((line) => line);

(async () => {
  const tokenizer = require('tokenizers').Tokenizer.fromFile(process.argv[2]);
  const answers = [];
  for (const line of lines) {
    const asked = JSON.parse(line);
    if (asked.text !== undefined) {
      const encoding = await tokenizer.encode(asked.text, null, { addSpecialTokens: asked.special });
      answers.push({ ids: encoding.getIds() });
    } else {
      answers.push({ text: await tokenizer.decode(asked.ids, asked.skip_special) });
    }
  }
  process.stdout.write(answers.map((answer) => JSON.stringify(answer) + '\n').join(''));
})();
