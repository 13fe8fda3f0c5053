// Gated DeltaNet: a convolution over time, then a recurrence on one matrix per value head,
//
//   S = e^g S;  S += k (beta (v - S^T k))^T;  o = S^T q / sqrt(dk)
//
// kept as P = sqrt(dk) S, so that fp16 products stay out of the subnormal range. One token runs it as it
// stands; a batch runs it in chunks whose tokens are solved at once (the WY form), every step a matrix
// product or elementwise.
#include <cmath>

#include "base/half.h"
#include "coreml/graphs/half_factors.h"
#include "coreml/graphs/pass.h"

namespace cmforge::coreml {
namespace {

class DeltaNet {
 public:
  DeltaNet(Pass& pass, std::string name, const PlannedLayer& layer)
      : pass_(pass),
        g_(pass.g),
        name_(std::move(name)),
        slot_(layer.slot),
        c_(pass.plan.config),
        n_k_(c_.linear_attention->num_key_heads),
        n_v_(c_.linear_attention->num_value_heads),
        dk_(c_.linear_attention->key_head_dim),
        dv_(c_.linear_attention->value_head_dim),
        kernel_(c_.linear_attention->conv_kernel),
        channels_(2 * n_k_ * dk_ + n_v_ * dv_),
        root_(std::sqrt(static_cast<double>(dk_))),
        read_scale_(static_cast<double>(
            RoundToF16(static_cast<float>(std::exp2(std::round(std::log2(root_))) / (root_ * root_))))) {}

  Var Run(const Var& h) {
    const int64_t t = pass_.tokens;
    const std::vector<Var> parts =
        g_.Split(Convolve(h), {Int(n_k_ * dk_), Int(n_k_ * dk_), Int(n_v_ * dv_)}, 2);
    if (!g_.ok()) return {};
    const Var q = Spread(Normalize(parts[0])), k = Spread(Normalize(parts[1]));  // [n_v, T, dk]
    const Var v = g_.Scale(Heads(parts[2], n_v_, dv_), root_);                   // [n_v, T, dv]
    // Sigmoids whose halving lies in the weights, see Attention.
    const Var beta = PerHead(g_.SigmoidOfHalf(Project(h, "in_proj_b", n_v_, 0.5f)));  // [n_v, T, 1]
    const Var step = Softplus(Project(h, "in_proj_a", n_v_, 1, true));
    const Var g = PerHead(g_.Mul(Decay("decay", &HalfFactors::rest),
                                 g_.Mul(Decay("decay_near_one", &HalfFactors::near_one), step)));
    const Var state = Rows(pass_.State(kDeltaState), slot_ * n_v_, (slot_ + 1) * n_v_);
    const Var o = t == 1 ? Recur(state, q, k, v, beta, g) : Chunks(state, q, k, v, beta, g);
    // Norm first, gate after, per head and token.
    const double amplified = read_scale_ * static_cast<double>(dk_);
    const Var normed = g_.FineRmsNorm(g_.Expand(o, {0}), dv_, c_.rms_norm_eps * amplified * amplified,
                                      name_ + "norm.weight", 0);  // [1, n_v, T, dv]
    const Var z = g_.Silu(g_.Linear(h, name_ + "in_proj_z", n_v_ * dv_, c_.hidden_size));
    return g_.Linear(g_.Mul(g_.FromHeads(normed), z), name_ + "out_proj", c_.hidden_size, n_v_ * dv_);
  }

 private:
  static int32_t Int(int64_t n) { return static_cast<int32_t>(n); }
  Var Rows(const Var& x, int64_t begin, int64_t end) { return g_.Slice(x, 0, begin, end); }

  /// A small projection, scaled, with the layer's dt_bias behind it.
  Var Project(const Var& h, const std::string& which, int64_t rows, float scale, bool is_step = false) {
    std::optional<Var> bias;
    if (is_step) bias = g_.Tensor(name_ + "dt_bias", {rows});
    return g_.Conv(h, g_.Matrix(name_ + which + ".weight", rows, c_.hidden_size, scale), bias);
  }

  /// ln(1 + e^x), as max(x, 0) + ln(1 + e^-|x|): nothing overflows.
  Var Softplus(const Var& x) {
    const Var small = g_.Unary("exp", g_.Scale(g_.Unary("abs", x), -1));
    const Var log = g_.Op("log", {{"x", g_.Add(small, Graph::Number(1))}, {"epsilon", Graph::Number(0)}});
    return g_.Add(g_.Unary("relu", x), log);
  }

  /// A factor of -exp(A_log), which fp16 does not hold, as a channel scale [1, n_v, 1, 1]: an error of the decay
  /// adds up over all that is remembered.
  Var Decay(const char* which, HalfFactor factor) {
    return g_.Weight(name_ + which, {1, n_v_, 1, 1}, [&]() -> Result<WeightRows> {
      CMF_TRY(const WeightRows rows, TensorRows(g_.source(), name_ + "A_log"));
      std::vector<float> logs(static_cast<size_t>(rows.rows * rows.cols));
      rows.read(0, rows.rows, logs.data());
      std::vector<double> values;
      for (const float log : logs) values.push_back(-std::exp(static_cast<double>(log)));
      return FactorRows(values, factor);
    });
  }

  /// Depthwise over time with the layer's last inputs in front, then SiLU: [1, T, channels].
  Var Convolve(const Var& h) {
    const int64_t t = pass_.tokens;
    const Var u = g_.FromChannels(g_.Linear(h, name_ + "in_proj_qkv", channels_, c_.hidden_size));
    const Var before = Rows(pass_.State(kConvState), slot_, slot_ + 1);  // [1, K - 1, channels]
    const Var window = g_.Concat({before, u}, 1);
    pass_.UpdateState(kConvState, g_.Slice(window, 1, t, t + kernel_ - 1),
                      std::vector<int32_t>{Int(slot_), 0, 0}, std::vector<int32_t>{Int(slot_ + 1), 0, 0},
                      {false, true, true});
    const Var taps = g_.Weight(name_ + "conv1d_taps", {kernel_, channels_}, [&]() -> Result<WeightRows> {
      CMF_TRY(WeightRows rows, TensorRows(g_.source(), name_ + "conv1d.weight"));
      return TransposeRows(rows);  // [channels, K] -> oldest tap first
    });
    if (t == 1) return g_.Silu(g_.Reduce("reduce_sum", g_.Mul(window, taps), 1));
    Var sum;
    for (int64_t j = 0; j < kernel_; ++j) {
      const Var term = g_.Mul(g_.Slice(window, 1, j, j + t), Rows(taps, j, j + 1));
      sum = j == 0 ? term : g_.Add(sum, term);
    }
    return g_.Silu(sum);
  }

  /// [1, T, n * d] -> [n, T, d].
  Var Heads(const Var& x, int64_t n, int64_t d) {
    return g_.Transpose(g_.Reshape(x, {pass_.tokens, n, d}), {1, 0, 2});
  }
  /// Keys and queries of unit length: [n_k, T, dk].
  Var Normalize(const Var& x) {
    const Var heads = Heads(x, n_k_, dk_);
    const Var squares = g_.Reduce("reduce_sum", g_.Mul(heads, heads), -1);
    return g_.Mul(heads, g_.Op("rsqrt", {{"x", squares}, {"epsilon", Graph::Number(1e-6)}}));
  }
  /// Each key head for its value heads.
  Var Spread(const Var& x) { return n_v_ == n_k_ ? x : g_.Squeeze(g_.RepeatHeads(x, n_v_ / n_k_), {0}); }
  /// [1, n_v, 1, T] -> [n_v, T, 1].
  Var PerHead(const Var& x) { return g_.Reshape(x, {n_v_, pass_.tokens, 1}); }

  void StoreState(const Var& p) {
    pass_.UpdateState(kDeltaState, p, std::vector<int32_t>{Int(slot_ * n_v_), 0, 0},
                      std::vector<int32_t>{Int((slot_ + 1) * n_v_), 0, 0}, {false, true, true});
  }

  /// One token; `v` is scaled by sqrt(dk) already.
  Var Recur(const Var& state, const Var& q, const Var& k, const Var& v, const Var& beta, const Var& g) {
    const Var faded = g_.Mul(state, g_.Unary("exp", g));
    const Var d = g_.Mul(g_.Sub(v, g_.Matmul(k, faded)), beta);          // [n_v, 1, dv]
    const Var p = g_.Add(faded, g_.Matmul(k, d, /*transpose_x=*/true));  // [n_v, dk, dv]
    StoreState(p);
    return g_.Scale(g_.Matmul(q, p), read_scale_);
  }

  /// 1 where `is_one`, a constant [1, size, size].
  template <class Fn>
  Var Matrix(const std::string& which, int64_t size, Fn is_one) {
    return g_.Weight(fmt::format("delta_rule_{}_{}", which, size), {1, size, size},
                     [&]() -> Result<WeightRows> {
                       std::vector<float> values(static_cast<size_t>(size * size));
                       for (int64_t i = 0; i < size; ++i) {
                         for (int64_t j = 0; j < size; ++j)
                           values[static_cast<size_t>(i * size + j)] = is_one(i, j) ? 1 : 0;
                       }
                       return ComputedRows(size, size, std::move(values));
                     });
  }

  Var Chunks(Var state, const Var& q, const Var& k, const Var& v, const Var& beta, const Var& g) {
    const int64_t size = pass_.plan.delta_chunk;
    std::vector<Var> out;
    for (int64_t begin = 0; begin < pass_.tokens; begin += size) {
      const auto part = [&](const Var& x) {
        return size == pass_.tokens ? x : g_.Slice(x, 1, begin, begin + size);
      };
      out.push_back(Chunk(state, part(q), part(k), part(v), part(beta), part(g)));
    }
    StoreState(state);
    return out.size() == 1 ? out[0] : g_.Concat(out, 1);
  }

  /// The tokens of one chunk; `state` becomes that behind them.
  Var Chunk(Var& state, const Var& q, const Var& k, const Var& v, const Var& beta, const Var& g) {
    const int64_t size = pass_.plan.delta_chunk;
    const Var lower = Matrix("lower", size, [](int64_t i, int64_t j) { return j <= i; });
    const Var strictly = Matrix("strictly", size, [](int64_t i, int64_t j) { return j < i; });
    // E[i, j] = sum of g over j < m <= i, term by term: differences of a running sum lose fp16's digits.
    const Var until = g_.Matmul(lower, g_.Mul(g, strictly));      // [n_v, C, C]
    const Var decay = g_.Mul(g_.Unary("exp", until), lower);      // D
    const Var from_start = g_.Unary("exp", g_.Matmul(lower, g));  // e^G, [n_v, C, 1]
    const Var to_end = g_.Unary("exp", g_.Reshape(g_.Slice(until, 1, size - 1, size), {n_v_, size, 1}));
    const Var key_products = g_.Mul(g_.Mul(g_.Matmul(k, k, false, true), decay), strictly);
    const Var inverse = Invert(g_.Mul(key_products, beta));
    const Var u = g_.Matmul(inverse, g_.Mul(v, beta));                      // [n_v, C, dv]
    const Var w = g_.Matmul(inverse, g_.Mul(g_.Mul(k, beta), from_start));  // [n_v, C, dk]
    const Var d = g_.Sub(u, g_.Matmul(w, state));
    const Var within = g_.Mul(g_.Matmul(q, k, false, true), decay);
    const Var o = g_.Add(g_.Matmul(g_.Mul(q, from_start), state), g_.Matmul(within, d));
    const Var end = g_.Slice(from_start, 1, size - 1, size);  // e^G of the last token
    state = g_.Add(g_.Mul(state, end), g_.Matmul(g_.Mul(k, to_end), d, /*transpose_x=*/true));
    return g_.Scale(o, read_scale_);
  }

  /// (I + A)^-1 of strictly lower A, by doubling blocks: the inverse of a block of two is that of its halves
  /// and -X A X between them. A power series would overflow for keys that resemble each other.
  Var Invert(const Var& a) {
    const int64_t size = pass_.plan.delta_chunk;
    Var x = Matrix("identity", size, [](int64_t i, int64_t j) { return i == j; });
    for (int64_t b = 1; b < size; b *= 2) {
      const Var mask = Matrix(fmt::format("below_{}", b), size, [b](int64_t i, int64_t j) {
        return i / (2 * b) == j / (2 * b) && i % (2 * b) >= b && j % (2 * b) < b;
      });
      const Var between = g_.Mul(a, mask);
      x = g_.Sub(x, b == 1 ? between : g_.Matmul(g_.Matmul(x, between), x));
    }
    return x;
  }

  Pass& pass_;
  Graph& g_;
  const std::string name_;
  const int64_t slot_;
  const ModelConfig& c_;
  const int64_t n_k_, n_v_, dk_, dv_, kernel_, channels_;
  const double root_;
  // Behind q^T P. The norm that follows does not mind a factor which its epsilon has too, so instead of 1 / dk this is
  // about 1 / sqrt(dk), by a power of two: the epsilon of o itself, 1e-6, and the squares of small o are subnormal.
  const double read_scale_;
};

}  // namespace

Var DeltaAttention(Pass& pass, const std::string& name, const PlannedLayer& layer, const Var& h) {
  return DeltaNet(pass, name + "linear_attn.", layer).Run(h);
}

}  // namespace cmforge::coreml
