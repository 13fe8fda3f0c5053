// What a text does to the inputs of a model's linear operators: the mean square of each input channel. An
// error in a weight matters by the square of what it is multiplied with, and in the head by how much its
// logit moves the answer.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace cmforge {

struct ChannelStats {
  std::map<std::string, std::vector<float>, std::less<>>
      mean_square;  // by weight name, [columns], finite, >= 0
  /// By weight name, [rows], finite, >= 0: how much the square of an error of each output counts. Only of the
  /// head: the mean of p (1 - p), p being the token's probability.
  std::map<std::string, std::vector<float>, std::less<>> row_weight;
  int64_t tokens = 0;  // of the text
  std::string origin;  // file or text, for messages
};

}  // namespace cmforge
