// SPDX-License-Identifier: Apache-2.0
// A vector with inline storage for its first elements. Small vectors need no heap allocation.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <iterator>
#include <new>
#include <type_traits>
#include <utility>
#include <vector>

namespace tessera {

/// Implements the part of std::vector's interface that shapes need, for trivially copyable values. Up to `N` elements
/// are stored inline. Moving copies inline elements, so it invalidates iterators.
template <class T, std::size_t N>
class InlineVector {
  static_assert(std::is_trivially_copyable_v<T> && std::is_trivially_destructible_v<T> && N > 0);

 public:
  using value_type = T;
  using size_type = std::size_t;
  using difference_type = std::ptrdiff_t;
  using reference = T&;
  using const_reference = const T&;
  using iterator = T*;
  using const_iterator = const T*;
  using reverse_iterator = std::reverse_iterator<iterator>;
  using const_reverse_iterator = std::reverse_iterator<const_iterator>;

  InlineVector() noexcept = default;
  /// Creates a vector with `count` copies of `value`.
  explicit InlineVector(std::size_t count, T value = T{}) { resize(count, value); }
  InlineVector(std::initializer_list<T> values) { assign(values.begin(), values.end()); }
  template <std::input_iterator I>
  InlineVector(I first, I last) {
    assign(first, last);
  }
  /// Copies a vector's elements.
  InlineVector(const std::vector<T>& values) { assign(values.begin(), values.end()); }
  InlineVector(const InlineVector& other) { copy(other); }
  InlineVector(InlineVector&& other) noexcept { take(other); }
  InlineVector& operator=(const InlineVector& other) {
    if (this != &other) copy(other);
    return *this;
  }
  InlineVector& operator=(InlineVector&& other) noexcept {
    if (this != &other) {
      release();
      take(other);
    }
    return *this;
  }
  /// Replaces the elements.
  InlineVector& operator=(std::initializer_list<T> values) {
    assign(values.begin(), values.end());
    return *this;
  }
  ~InlineVector() { release(); }

  /// Copies the elements to a vector.
  operator std::vector<T>() const { return {begin(), end()}; }

  /// @{
  /// Same as the member of std::vector with this name.
  std::size_t size() const noexcept { return size_; }
  bool empty() const noexcept { return size_ == 0; }
  std::size_t capacity() const noexcept { return capacity_; }
  T* data() noexcept { return heap() ? heap_ : inside_; }
  const T* data() const noexcept { return heap() ? heap_ : inside_; }
  iterator begin() noexcept { return data(); }
  iterator end() noexcept { return data() + size_; }
  const_iterator begin() const noexcept { return data(); }
  const_iterator end() const noexcept { return data() + size_; }
  reverse_iterator rbegin() noexcept { return reverse_iterator(end()); }
  reverse_iterator rend() noexcept { return reverse_iterator(begin()); }
  const_reverse_iterator rbegin() const noexcept { return const_reverse_iterator(end()); }
  const_reverse_iterator rend() const noexcept { return const_reverse_iterator(begin()); }
  T& operator[](std::size_t i) noexcept { return data()[i]; }
  const T& operator[](std::size_t i) const noexcept { return data()[i]; }
  T& front() noexcept { return data()[0]; }
  const T& front() const noexcept { return data()[0]; }
  T& back() noexcept { return data()[size_ - 1]; }
  const T& back() const noexcept { return data()[size_ - 1]; }

  void reserve(std::size_t count) {
    if (count <= capacity_) return;
    if (count < std::size_t{capacity_} * 2) count = std::size_t{capacity_} * 2;
    if (count > UINT32_MAX) throw std::bad_alloc();
    T* grown = new T[count];
    move(begin(), end(), grown);
    release();
    heap_ = grown;
    capacity_ = static_cast<std::uint32_t>(count);
  }
  void resize(std::size_t count, T value = T{}) {
    reserve(count);
    for (std::size_t i = size_; i < count; ++i) data()[i] = value;
    size_ = static_cast<std::uint32_t>(count);
  }
  void clear() noexcept { size_ = 0; }
  void push_back(T value) {
    reserve(size_ + std::size_t{1});
    data()[size_++] = value;
  }
  void pop_back() noexcept { --size_; }
  template <std::input_iterator I>
  void assign(I first, I last) {
    clear();
    if constexpr (std::forward_iterator<I>) {
      const auto count = static_cast<std::size_t>(std::distance(first, last));
      reserve(count);
      size_ = static_cast<std::uint32_t>(count);
      for (T* to = data(); first != last; ++first, ++to) *to = static_cast<T>(*first);
    } else {
      for (; first != last; ++first) push_back(*first);
    }
  }
  iterator insert(const_iterator at, T value) {
    const std::ptrdiff_t i = at - begin();
    reserve(size_ + std::size_t{1});
    move(begin() + i, end(), begin() + i + 1);
    ++size_;
    data()[i] = value;
    return begin() + i;
  }
  template <std::forward_iterator I>
  iterator insert(const_iterator at, I first, I last) {
    const std::ptrdiff_t i = at - begin(), count = std::distance(first, last);
    reserve(size_ + static_cast<std::size_t>(count));
    move(begin() + i, end(), begin() + i + count);
    size_ += static_cast<std::uint32_t>(count);
    for (T* to = begin() + i; first != last; ++first, ++to) *to = static_cast<T>(*first);
    return begin() + i;
  }
  iterator insert(const_iterator at, std::initializer_list<T> values) {
    return insert(at, values.begin(), values.end());
  }
  iterator erase(const_iterator at) noexcept { return erase(at, at + 1); }
  /// Same as the member of std::vector with this name.
  iterator erase(const_iterator first, const_iterator last) noexcept {
    T* const to = begin() + (first - begin());
    move(last, end(), to);
    size_ -= static_cast<std::uint32_t>(last - first);
    return to;
  }

  friend bool operator==(const InlineVector& a, const InlineVector& b) noexcept {
    if (a.size_ != b.size_) return false;
    const T *x = a.data(), *y = b.data();
    for (std::size_t i = 0; i < a.size_; ++i)
      if (!(x[i] == y[i])) return false;
    return true;
  }
  friend auto operator<=>(const InlineVector& a, const InlineVector& b) noexcept {
    const T *x = a.data(), *y = b.data();
    for (std::size_t i = 0; i < a.size_ && i < b.size_; ++i)
      if (const auto order = x[i] <=> y[i]; order != 0) return order;
    return decltype(*x <=> *y)(a.size_ <=> b.size_);
  }

 private:
  bool heap() const noexcept { return capacity_ > N; }
  // The ranges may overlap.
  static void move(const T* first, const T* last, T* to) noexcept {
    if (first != last) std::memmove(static_cast<void*>(to), first, static_cast<std::size_t>(last - first) * sizeof(T));
  }
  void release() noexcept {
    if (heap()) delete[] heap_;
    capacity_ = N;
  }
  // Copies the whole inline storage, which is faster than a loop over the used elements.
  void copy(const InlineVector& other) {
    if (heap() || other.heap() || sizeof inside_ > 128) return assign(other.begin(), other.end());
    size_ = other.size_;
    std::memcpy(inside_, other.inside_, sizeof inside_);
  }
  void take(InlineVector& other) noexcept {
    size_ = std::exchange(other.size_, 0);
    capacity_ = std::exchange(other.capacity_, static_cast<std::uint32_t>(N));
    if (heap())
      heap_ = other.heap_;
    else if constexpr (sizeof inside_ > 128)
      move(other.inside_, other.inside_ + size_, inside_);
    else
      std::memcpy(inside_, other.inside_, sizeof inside_);
  }

  std::uint32_t size_ = 0, capacity_ = N;
  union {
    T inside_[N] = {};
    T* heap_;
  };
};

}  // namespace tessera
