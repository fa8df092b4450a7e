//===- ReferenceMath.h - vectors and matrices in float64 --------*- C++ -*-===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef LADLE_TESTS_MODELS_REFERENCEMATH_H
#define LADLE_TESTS_MODELS_REFERENCEMATH_H

#include <cmath>
#include <cstdint>
#include <vector>

namespace ladle::reference {

using Vector = std::vector<double>;

inline double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }
inline double silu(double x) { return x * sigmoid(x); }
inline double softplus(double x) {
  return std::fmax(x, 0) + std::log1p(std::exp(-std::fabs(x)));
}

/// What head `head` of `heads` sees of a tensor with rows of `width`: its own
/// row, or that of its group if the tensor has fewer heads.
inline Vector headRow(const Vector &tensor, int64_t width, int64_t head,
                      int64_t heads) {
  int64_t rows = static_cast<int64_t>(tensor.size()) / width;
  auto begin = tensor.begin() + head * rows / heads * width;
  return Vector(begin, begin + width);
}

/// The same for a tensor with one number a head.
inline double headValue(const Vector &tensor, int64_t head, int64_t heads) {
  return tensor[head * static_cast<int64_t>(tensor.size()) / heads];
}

inline double dot(const Vector &x, const Vector &y) {
  double sum = 0;
  for (size_t i = 0; i < x.size(); ++i)
    sum += x[i] * y[i];
  return sum;
}

template <typename Function> Vector map(Vector x, Function function) {
  for (double &value : x)
    value = function(value);
  return x;
}

template <typename Function>
Vector zip(Vector x, const Vector &y, Function function) {
  for (size_t i = 0; i < x.size(); ++i)
    x[i] = function(x[i], y[i]);
  return x;
}

inline Vector scaled(const Vector &x, double factor) {
  return map(x, [&](double value) { return value * factor; });
}

inline Vector product(const Vector &x, const Vector &y) {
  return zip(x, y, [](double a, double b) { return a * b; });
}

inline Vector sum(const Vector &x, const Vector &y) {
  return zip(x, y, [](double a, double b) { return a + b; });
}

/// x / sqrt(sum x^2 + eps), the L2 norm of the served models.
inline Vector l2Normalised(const Vector &x, double eps = 1e-6) {
  return scaled(x, 1 / std::sqrt(dot(x, x) + eps));
}

/// x / sqrt(mean x^2 + eps)
inline Vector rmsNormalised(const Vector &x, double eps) {
  return scaled(x, 1 / std::sqrt(dot(x, x) / x.size() + eps));
}

/// A dense row-major matrix.
struct Matrix {
  int64_t rows, columns;
  Vector values;

  Matrix(int64_t rows, int64_t columns)
      : rows(rows), columns(columns), values(rows * columns) {}

  static Matrix diagonal(const Vector &x) {
    Matrix result(x.size(), x.size());
    for (size_t i = 0; i < x.size(); ++i)
      result(i, i) = x[i];
    return result;
  }

  double &operator()(int64_t i, int64_t j) { return values[i * columns + j]; }
  double operator()(int64_t i, int64_t j) const {
    return values[i * columns + j];
  }

  /// this += factor x y^T
  void addOuter(double factor, const Vector &x, const Vector &y) {
    for (int64_t i = 0; i < rows; ++i)
      for (int64_t j = 0; j < columns; ++j)
        (*this)(i, j) += factor * x[i] * y[j];
  }

  Matrix transposed() const {
    Matrix result(columns, rows);
    for (int64_t i = 0; i < rows; ++i)
      for (int64_t j = 0; j < columns; ++j)
        result(j, i) = (*this)(i, j);
    return result;
  }
};

inline Matrix operator*(const Matrix &x, const Matrix &y) {
  Matrix result(x.rows, y.columns);
  for (int64_t i = 0; i < x.rows; ++i)
    for (int64_t k = 0; k < x.columns; ++k)
      for (int64_t j = 0; j < y.columns; ++j)
        result(i, j) += x(i, k) * y(k, j);
  return result;
}

inline Vector operator*(const Matrix &x, const Vector &y) {
  Vector result(x.rows);
  for (int64_t i = 0; i < x.rows; ++i)
    for (int64_t j = 0; j < x.columns; ++j)
      result[i] += x(i, j) * y[j];
  return result;
}

/// Appends the row of one head to a tensor.
inline void append(Vector &tensor, const Vector &row) {
  tensor.insert(tensor.end(), row.begin(), row.end());
}

} // namespace ladle::reference

#endif // LADLE_TESTS_MODELS_REFERENCEMATH_H
