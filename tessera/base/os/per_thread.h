// SPDX-License-Identifier: Apache-2.0
// Per-thread objects that outlive C++ thread_local objects, which are destroyed before static objects and in order of
// construction. Kernel launches in destructors depend on these objects.
#pragma once

namespace tessera::os {

/// Creates a pthread key whose values are passed to `destroy` when their thread ends. Returns 0 if no key is available;
/// values are then kept until the process ends.
unsigned make_thread_key(void (*destroy)(void*)) noexcept;
void set_thread_value(unsigned key, void* value) noexcept;

/// One T per thread, created at first use. It is destroyed after the thread's thread_local objects, and recreated if
/// another such destructor uses it. The exiting thread's object is kept for the destructors of static objects. `Use`
/// distinguishes objects of the same type.
template <class T, class Use>
class PerThread {
 public:
  static T& get() {
    if (mine_ != nullptr) [[likely]]
      return *mine_;
    return make();
  }

 private:
  [[gnu::noinline]] static T& make() {
    mine_ = new T;
    set_thread_value(key_, mine_);
    return *mine_;
  }
  static inline constinit thread_local T* mine_ = nullptr;
  // Created when the library is loaded: a function-local static could be half-initialised when the process forks.
  static inline const unsigned key_ = make_thread_key([](void* object) {
    mine_ = nullptr;
    delete static_cast<T*>(object);
  });
};

}  // namespace tessera::os
