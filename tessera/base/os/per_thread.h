// SPDX-License-Identifier: Apache-2.0
// What each thread keeps for its next use. C++'s own thread_local objects are destroyed before static objects are, and
// in the order in which they happened to be made: what a kernel needs must be there in any destructor.
#pragma once

namespace tessera::os {

/// A key of the system's by which a thread's object is handed to `destroy` when the thread ends; 0 if there is none
/// left: objects are then kept until the process ends.
unsigned make_thread_key(void (*destroy)(void*)) noexcept;
void set_thread_value(unsigned key, void* value) noexcept;

/// One T of each thread, made at its first use. It is destroyed after the thread's thread_local objects, and made again
/// if the destructors of other such objects need it; that of the thread in which the process exits stays, for static
/// objects' destructors. `Use` tells apart what is kept for different purposes.
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
  // Made when the library is loaded: a static object of make() could be half made when the process is forked.
  static inline const unsigned key_ = make_thread_key([](void* object) {
    mine_ = nullptr;
    delete static_cast<T*>(object);
  });
};

}  // namespace tessera::os
