// SPDX-License-Identifier: Apache-2.0
// Per-thread objects that are destroyed later than C++ thread_local objects. Kernel launches in destructors of static
// or thread_local objects need them.
#pragma once

namespace tessera::os {

/// Creates a pthread key. When a thread ends, `destroy` is called with the thread's value. Returns 0 if no key is
/// available; values are then kept until the process ends.
unsigned make_thread_key(void (*destroy)(void*)) noexcept;
void set_thread_value(unsigned key, void* value) noexcept;

/// One T per thread, created on first use. It is destroyed after the thread's thread_local objects. If another
/// destructor uses it later, it is created again. The object of the exiting thread is kept for the destructors of
/// static objects. `Use` distinguishes objects of the same type.
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
  // Created when the library is loaded, because a function-local static could be partly initialised when the process
  // forks.
  static inline const unsigned key_ = make_thread_key([](void* object) {
    mine_ = nullptr;
    delete static_cast<T*>(object);
  });
};

}  // namespace tessera::os
