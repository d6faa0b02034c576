// SPDX-License-Identifier: Apache-2.0
// Values that belong to a device, such as a library handle, a cache or a random generator. Tasks that use such a value
// run on its device.
#pragma once

#include <concepts>
#include <map>
#include <memory>

#include "tessera/base/callback.h"
#include "tessera/base/mutex.h"
#include "tessera/task/argument.h"
#include "tessera/task/this_task.h"

namespace tessera {

/// A value of type T that belongs to one device and is never copied or moved. Copies of a `pinned` share the value. A
/// task receives it as T& and runs on its device. `spawn` throws DeviceError if the scope does not contain the device.
/// Tasks that modify the same value are not ordered automatically. Add a dependency between them, or use a lock.
template <class T>
class pinned {
 public:
  /// Constructs the value on this thread. `device` is the current device during construction.
  template <class... A>
  explicit pinned(Device device, A&&... arguments) : device_(device) {
    const DeviceScope current(device);
    value_ = std::make_shared<T>(std::forward<A>(arguments)...);
  }
  /// The value's device.
  Device device() const noexcept { return device_; }
  /// The value.
  T& get() const noexcept { return *value_; }

 private:
  Device device_;
  std::shared_ptr<T> value_;
};

/// A value of type T for each device of a scope. `make()` creates it when it is first used on a device, with that
/// device as the current device. A task receives a T& that refers to the value of the task's device. This device must
/// be in the scope.
template <class T>
class per_device {
 public:
  /// `make` is called when a device of `scope` is first used.
  explicit per_device(
      Scope scope, Callback<T()> make = [] { return T(); })
      : all_(std::make_shared<All>(std::move(scope), std::move(make))) {}
  /// The devices.
  const Scope& scope() const noexcept { return all_->scope; }
  /// Returns the value of `device`. Throws DeviceError if the scope does not contain the device.
  T& at(Device device) const {
    if (!all_->scope.contains(device))
      fail<DeviceError>({.operation = "per_device",
                         .with = {{"device", to_string(device)}, {"scope", to_string(all_->scope)}},
                         .wrong = "the scope does not contain this device"});
    const detail::LockGuard hold(all_->lock);
    std::unique_ptr<T>& there = all_->values[device];
    if (!there) {
      const DeviceScope current(device);
      there = std::make_unique<T>(all_->make());
    }
    return *there;
  }
  /// Returns the value for the running task's device.
  T& local() const { return at(this_task::device()); }

 private:
  struct All {
    All(Scope s, Callback<T()> m) : scope(std::move(s)), make(std::move(m)) {}
    const Scope scope;
    const Callback<T()> make;
    detail::Mutex lock;
    std::map<Device, std::unique_ptr<T>> values;
  };
  std::shared_ptr<All> all_;
};

namespace detail {

template <class T>
struct TaskArgument<pinned<T>> {
  static void place(TaskPlacer& placer, std::size_t number, const pinned<T>& value) {
    placer.restrict_to(Scope(value.device()), "argument " + std::to_string(number) + ", pinned to");
  }
  static void attach(TaskNode&, pinned<T>&) {}
  static std::tuple<T&> unwrap(pinned<T>& value) { return std::tuple<T&>(value.get()); }
};
template <class T>
struct TaskArgument<per_device<T>> {
  static void place(TaskPlacer& placer, std::size_t number, const per_device<T>& values) {
    placer.restrict_to(values.scope(), "argument " + std::to_string(number) + ", one value for each of");
  }
  static void attach(TaskNode&, per_device<T>&) {}
  static std::tuple<T&> unwrap(per_device<T>& values) { return std::tuple<T&>(values.local()); }
};

}  // namespace detail
}  // namespace tessera
