// SPDX-License-Identifier: Apache-2.0
#include "tessera/backend/opencl/dispatch.h"

namespace tessera::cl {
namespace {

template <class F>
F* slot_of(const void* object, std::size_t slot) {
  const void* const* table = *static_cast<const void* const* const*>(object);
  return reinterpret_cast<F*>(const_cast<void*>(table[slot]));
}

/// Provides a function of type F that calls entry `slot` in the dispatch table of its first argument.
template <std::size_t slot, class F>
struct Through;
template <std::size_t slot, class R, class Object, class... Rest>
struct Through<slot, R(Object, Rest...)> {
  static R call(Object object, Rest... rest) { return slot_of<R(Object, Rest...)>(object, slot)(object, rest...); }
};

template <std::size_t slot, class F>
void set(F*& function) {
  function = Through<slot, F>::call;
}

Context create_context(const std::intptr_t* properties, std::uint32_t count, const DeviceId* devices,
                       void (*notify)(const char*, const void*, std::size_t, void*), void* data, Code* code) {
  using F = std::remove_pointer_t<decltype(Api::create_context)>;
  return slot_of<F>(devices[0], DispatchSlots::create_context)(properties, count, devices, notify, data, code);
}

Code wait_events(std::uint32_t count, const Event* events) {
  using F = std::remove_pointer_t<decltype(Api::wait_events)>;
  return slot_of<F>(events[0], DispatchSlots::wait_events)(count, events);
}

}  // namespace

void fill_by_dispatch(Api& a) {
  using S = DispatchSlots;
  set<S::get_platform_info>(a.get_platform_info);
  set<S::get_devices>(a.get_devices);
  set<S::get_device_info>(a.get_device_info);
  a.create_context = create_context;
  set<S::create_queue>(a.create_queue);
  set<S::release_queue>(a.release_queue);
  set<S::create_buffer>(a.create_buffer);
  set<S::release_memory>(a.release_memory);
  set<S::create_program>(a.create_program);
  set<S::release_program>(a.release_program);
  set<S::build_program>(a.build_program);
  set<S::get_build_info>(a.get_build_info);
  set<S::create_kernel>(a.create_kernel);
  set<S::release_kernel>(a.release_kernel);
  set<S::set_argument>(a.set_argument);
  set<S::get_kernel_group_info>(a.get_kernel_group_info);
  a.wait_events = wait_events;
  set<S::get_event_info>(a.get_event_info);
  set<S::release_event>(a.release_event);
  set<S::flush>(a.flush);
  set<S::finish>(a.finish);
  set<S::enqueue_read>(a.enqueue_read);
  set<S::enqueue_write>(a.enqueue_write);
  set<S::enqueue_copy>(a.enqueue_copy);
  set<S::enqueue_kernel>(a.enqueue_kernel);
  set<S::enqueue_fill>(a.enqueue_fill);
  set<S::enqueue_map>(a.enqueue_map);
  set<S::enqueue_unmap>(a.enqueue_unmap);
  set<S::enqueue_marker>(a.enqueue_marker);
  set<S::enqueue_barrier>(a.enqueue_barrier);
}

}  // namespace tessera::cl
