// Schoolbook arithmetic on 32-bit limbs.
#include "text/jinja/big_int.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

namespace cmforge::jinja {

BigInt::BigInt(int64_t value)
    : BigInt(FromUnsigned(value < 0 ? 0 - static_cast<uint64_t>(value) : static_cast<uint64_t>(value))) {
  negative_ = value < 0;
}

BigInt BigInt::FromUnsigned(uint64_t value) {
  BigInt r;
  for (; value != 0; value >>= 32) r.limbs_.push_back(static_cast<uint32_t>(value));
  return r;
}

BigInt BigInt::PowerOfTwo(int64_t exponent) {
  BigInt r;
  r.limbs_.assign(static_cast<size_t>(exponent / 32) + 1, 0);
  r.limbs_.back() = uint32_t{1} << (exponent % 32);
  return r;
}

BigInt BigInt::FromDouble(double value) {
  int exponent = 0;
  const double fraction = std::frexp(std::fabs(std::trunc(value)), &exponent);  // in [0.5, 1)
  BigInt r;
  if (fraction == 0) return r;
  const auto mantissa = static_cast<uint64_t>(std::ldexp(fraction, 53));
  if (exponent <= 53) {
    r = FromUnsigned(mantissa >> (53 - exponent));
  } else {
    const int shift = exponent - 53;
    r.limbs_.assign(static_cast<size_t>(shift / 32), 0);
    const int bit = shift % 32;
    const uint64_t low = mantissa << bit;
    r.limbs_.push_back(static_cast<uint32_t>(low));
    r.limbs_.push_back(static_cast<uint32_t>(low >> 32));
    r.limbs_.push_back(bit == 0 ? 0 : static_cast<uint32_t>(mantissa >> (64 - bit)));
    Trim(&r.limbs_);
  }
  r.negative_ = value < 0;
  return r;
}

std::optional<BigInt> BigInt::Parse(std::string_view digits, int base) {
  if (digits.empty()) return std::nullopt;
  BigInt r;
  for (const char c : digits) {
    int digit = 99;
    if (c >= '0' && c <= '9') digit = c - '0';
    if (c >= 'a' && c <= 'z') digit = c - 'a' + 10;
    if (c >= 'A' && c <= 'Z') digit = c - 'A' + 10;
    if (digit >= base) return std::nullopt;
    uint64_t carry = static_cast<uint64_t>(digit);
    for (uint32_t& limb : r.limbs_) {
      carry += uint64_t{limb} * static_cast<uint64_t>(base);
      limb = static_cast<uint32_t>(carry);
      carry >>= 32;
    }
    if (carry != 0) r.limbs_.push_back(static_cast<uint32_t>(carry));
    if (r.bits() > kMaxBits) return std::nullopt;
  }
  return r;
}

int64_t BigInt::bits() const {
  if (limbs_.empty()) return 0;
  return static_cast<int64_t>(limbs_.size()) * 32 - std::countl_zero(limbs_.back());
}

bool BigInt::FitsInt64() const {
  if (bits() < 64) return true;
  return negative_ && bits() == 64 && limbs_[1] == 0x80000000u && limbs_[0] == 0;
}

int64_t BigInt::ToInt64() const {
  uint64_t magnitude = 0;
  for (size_t i = std::min<size_t>(limbs_.size(), 2); i-- > 0;) magnitude = (magnitude << 32) | limbs_[i];
  return static_cast<int64_t>(negative_ ? 0 - magnitude : magnitude);
}

double BigInt::ToDouble() const {
  const int64_t n = bits();
  if (n > 1024)
    return negative_ ? -std::numeric_limits<double>::infinity() : std::numeric_limits<double>::infinity();
  // The top 64 bits, with the lowest one set when anything below is: then the conversion rounds rightly.
  uint64_t top = 0;
  const int64_t drop = std::max<int64_t>(0, n - 64);
  bool sticky = false;
  for (int64_t bit = n - 1; bit >= drop; --bit) {
    top = (top << 1) | ((limbs_[static_cast<size_t>(bit / 32)] >> (bit % 32)) & 1u);
  }
  for (int64_t bit = 0; bit < drop && !sticky; ++bit) {
    sticky = ((limbs_[static_cast<size_t>(bit / 32)] >> (bit % 32)) & 1u) != 0;
  }
  if (sticky) top |= 1;
  const double magnitude = std::ldexp(static_cast<double>(top), static_cast<int>(drop));
  return negative_ ? -magnitude : magnitude;
}

std::string BigInt::ToText(int base) const {
  if (limbs_.empty()) return "0";
  Limbs rest = limbs_;
  std::string text;
  uint32_t chunk = static_cast<uint32_t>(base);  // the largest power of the base below 2^32
  int digits = 1;
  while (uint64_t{chunk} * static_cast<uint64_t>(base) < (uint64_t{1} << 32)) {
    chunk *= static_cast<uint32_t>(base);
    ++digits;
  }
  while (!rest.empty()) {
    uint32_t part = DivideBySmall(&rest, chunk);
    for (int i = 0; i < digits && (part != 0 || !rest.empty()); ++i) {
      text += "0123456789abcdefghijklmnopqrstuvwxyz"[part % static_cast<uint32_t>(base)];
      part /= static_cast<uint32_t>(base);
    }
  }
  if (negative_) text += '-';
  std::reverse(text.begin(), text.end());
  return text;
}

int BigInt::Compare(const BigInt& other) const {
  if (negative_ != other.negative_) return negative_ ? -1 : 1;
  const int magnitude = CompareMagnitude(limbs_, other.limbs_);
  return negative_ ? -magnitude : magnitude;
}

BigInt BigInt::Negated() const {
  BigInt r = *this;
  r.negative_ = !negative_ && !limbs_.empty();
  return r;
}

BigInt operator+(const BigInt& a, const BigInt& b) {
  BigInt r;
  if (a.negative_ == b.negative_) {
    r.limbs_ = BigInt::AddMagnitude(a.limbs_, b.limbs_);
    r.negative_ = a.negative_;
  } else if (BigInt::CompareMagnitude(a.limbs_, b.limbs_) >= 0) {
    r.limbs_ = BigInt::SubtractMagnitude(a.limbs_, b.limbs_);
    r.negative_ = a.negative_;
  } else {
    r.limbs_ = BigInt::SubtractMagnitude(b.limbs_, a.limbs_);
    r.negative_ = b.negative_;
  }
  if (r.limbs_.empty()) r.negative_ = false;
  return r;
}

BigInt operator*(const BigInt& a, const BigInt& b) {
  BigInt r;
  if (a.limbs_.empty() || b.limbs_.empty()) return r;
  r.limbs_.assign(a.limbs_.size() + b.limbs_.size(), 0);
  for (size_t i = 0; i < a.limbs_.size(); ++i) {
    uint64_t carry = 0;
    for (size_t j = 0; j < b.limbs_.size(); ++j) {
      carry += uint64_t{a.limbs_[i]} * b.limbs_[j] + r.limbs_[i + j];
      r.limbs_[i + j] = static_cast<uint32_t>(carry);
      carry >>= 32;
    }
    r.limbs_[i + b.limbs_.size()] = static_cast<uint32_t>(carry);
  }
  BigInt::Trim(&r.limbs_);
  r.negative_ = a.negative_ != b.negative_;
  return r;
}

void BigInt::DivideFloor(const BigInt& a, const BigInt& b, BigInt* quotient, BigInt* remainder) {
  BigInt q;
  BigInt r;
  DivideMagnitude(a.limbs_, b.limbs_, &q.limbs_, &r.limbs_);
  q.negative_ = a.negative_ != b.negative_ && !q.limbs_.empty();
  r.negative_ = a.negative_ && !r.limbs_.empty();
  if (!r.is_zero() && r.negative_ != b.negative_) {
    q = q - BigInt(1);
    r = r + b;
  }
  if (quotient) *quotient = std::move(q);
  if (remainder) *remainder = std::move(r);
}

int BigInt::CompareMagnitude(const Limbs& a, const Limbs& b) {
  if (a.size() != b.size()) return a.size() < b.size() ? -1 : 1;
  for (size_t i = a.size(); i-- > 0;) {
    if (a[i] != b[i]) return a[i] < b[i] ? -1 : 1;
  }
  return 0;
}

BigInt::Limbs BigInt::AddMagnitude(const Limbs& a, const Limbs& b) {
  Limbs r(std::max(a.size(), b.size()) + 1, 0);
  uint64_t carry = 0;
  for (size_t i = 0; i < r.size(); ++i) {
    carry += (i < a.size() ? uint64_t{a[i]} : 0) + (i < b.size() ? uint64_t{b[i]} : 0);
    r[i] = static_cast<uint32_t>(carry);
    carry >>= 32;
  }
  Trim(&r);
  return r;
}

BigInt::Limbs BigInt::SubtractMagnitude(const Limbs& a, const Limbs& b) {
  Limbs r = a;
  int64_t borrow = 0;
  for (size_t i = 0; i < r.size(); ++i) {
    int64_t difference = int64_t{a[i]} - (i < b.size() ? int64_t{b[i]} : 0) - borrow;
    borrow = difference < 0 ? 1 : 0;
    if (borrow != 0) difference += int64_t{1} << 32;
    r[i] = static_cast<uint32_t>(difference);
  }
  Trim(&r);
  return r;
}

uint32_t BigInt::DivideBySmall(Limbs* a, uint32_t divisor) {
  uint64_t rest = 0;
  for (size_t i = a->size(); i-- > 0;) {
    rest = (rest << 32) | (*a)[i];
    (*a)[i] = static_cast<uint32_t>(rest / divisor);
    rest %= divisor;
  }
  Trim(a);
  return static_cast<uint32_t>(rest);
}

// Knuth's algorithm D.
void BigInt::DivideMagnitude(const Limbs& a, const Limbs& b, Limbs* quotient, Limbs* remainder) {
  if (CompareMagnitude(a, b) < 0) {
    quotient->clear();
    *remainder = a;
    return;
  }
  if (b.size() == 1) {
    *quotient = a;
    const uint32_t rest = DivideBySmall(quotient, b[0]);
    remainder->clear();
    if (rest != 0) remainder->push_back(rest);
    return;
  }
  const int shift = std::countl_zero(b.back());
  const auto shifted = [shift](const Limbs& x) {
    Limbs r(x.size() + 1, 0);
    for (size_t i = 0; i < x.size(); ++i) {
      const uint64_t wide = uint64_t{x[i]} << shift;
      r[i] |= static_cast<uint32_t>(wide);
      r[i + 1] = static_cast<uint32_t>(wide >> 32);
    }
    return r;
  };
  Limbs u = shifted(a);
  Limbs v = shifted(b);
  v.pop_back();  // zero after the shift
  const size_t n = v.size();
  const size_t m = u.size() - n - 1;
  quotient->assign(m + 1, 0);
  for (size_t j = m + 1; j-- > 0;) {
    const uint64_t top = (uint64_t{u[j + n]} << 32) | u[j + n - 1];
    uint64_t q = top / v[n - 1];
    uint64_t rest = top % v[n - 1];
    while (q >> 32 != 0 || q * v[n - 2] > ((rest << 32) | u[j + n - 2])) {
      --q;
      rest += v[n - 1];
      if (rest >> 32 != 0) break;
    }
    int64_t borrow = 0;
    uint64_t carry = 0;
    for (size_t i = 0; i < n; ++i) {
      carry += q * v[i];
      const int64_t difference = int64_t{u[i + j]} - static_cast<int64_t>(carry & 0xFFFFFFFFu) - borrow;
      u[i + j] = static_cast<uint32_t>(difference);
      borrow = difference < 0 ? 1 : 0;
      carry >>= 32;
    }
    const int64_t difference = int64_t{u[j + n]} - static_cast<int64_t>(carry) - borrow;
    u[j + n] = static_cast<uint32_t>(difference);
    if (difference < 0) {  // one too many: add the divisor back
      --q;
      uint64_t sum = 0;
      for (size_t i = 0; i < n; ++i) {
        sum += uint64_t{u[i + j]} + v[i];
        u[i + j] = static_cast<uint32_t>(sum);
        sum >>= 32;
      }
      u[j + n] += static_cast<uint32_t>(sum);
    }
    (*quotient)[j] = static_cast<uint32_t>(q);
  }
  Trim(quotient);
  u.resize(n);
  for (size_t i = 0; i < n; ++i) {
    const uint64_t wide = (i + 1 < n ? uint64_t{u[i + 1]} << 32 : 0) | u[i];
    u[i] = static_cast<uint32_t>(wide >> shift);
  }
  Trim(&u);
  *remainder = std::move(u);
}

void BigInt::Trim(Limbs* limbs) {
  while (!limbs->empty() && limbs->back() == 0) limbs->pop_back();
}

}  // namespace cmforge::jinja
