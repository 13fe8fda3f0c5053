// What a text does to the inputs of a model's linear operators: the mean square of each input channel. An
// error in a weight matters by the square of what it is multiplied with.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace cmforge {

struct ChannelStats {
  std::map<std::string, std::vector<float>, std::less<>>
      mean_square;     // by weight name, [columns], finite, >= 0
  int64_t tokens = 0;  // of the text
  std::string origin;  // file or text, for messages
};

}  // namespace cmforge
