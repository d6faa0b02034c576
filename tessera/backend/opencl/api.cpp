// SPDX-License-Identifier: Apache-2.0
#include "tessera/backend/opencl/api.h"

#include <atomic>
#include <mutex>
#include <utility>

#include "tessera/backend/opencl/icd.h"
#include "tessera/base/error.h"
#include "tessera/base/os/system.h"

namespace tessera::cl {

std::vector<std::string> loader_candidates() {
  if (auto asked = os::environment("TESSERA_OPENCL_LIBRARY"); asked && !asked->empty()) return {std::move(*asked)};
#if defined(_WIN32)
  return {"OpenCL.dll"};
#elif defined(__APPLE__)
  return {"/System/Library/Frameworks/OpenCL.framework/OpenCL"};
#else
  return {"libOpenCL.so.1", "libOpenCL.so"};
#endif
}

namespace {

Api load() {
  Api a;
  a.library = os::Library::open(loader_candidates());
  if (!a.library.loaded()) return a;
  auto get = [&]<class F>(F*& to, const char* name) {
    to = a.library.function<F>(name);
    if (!to && a.missing.empty()) a.missing = name;
  };
  get(a.get_platforms, "clGetPlatformIDs");
  get(a.get_platform_info, "clGetPlatformInfo");
  get(a.get_devices, "clGetDeviceIDs");
  get(a.get_device_info, "clGetDeviceInfo");
  get(a.create_context, "clCreateContext");
  get(a.create_queue, "clCreateCommandQueue");
  get(a.release_queue, "clReleaseCommandQueue");
  get(a.create_buffer, "clCreateBuffer");
  get(a.release_memory, "clReleaseMemObject");
  get(a.create_program, "clCreateProgramWithSource");
  get(a.build_program, "clBuildProgram");
  get(a.get_build_info, "clGetProgramBuildInfo");
  get(a.release_program, "clReleaseProgram");
  get(a.create_kernel, "clCreateKernel");
  get(a.release_kernel, "clReleaseKernel");
  get(a.set_argument, "clSetKernelArg");
  get(a.get_kernel_group_info, "clGetKernelWorkGroupInfo");
  get(a.enqueue_kernel, "clEnqueueNDRangeKernel");
  get(a.enqueue_write, "clEnqueueWriteBuffer");
  get(a.enqueue_read, "clEnqueueReadBuffer");
  get(a.enqueue_copy, "clEnqueueCopyBuffer");
  get(a.enqueue_fill, "clEnqueueFillBuffer");
  get(a.enqueue_map, "clEnqueueMapBuffer");
  get(a.enqueue_unmap, "clEnqueueUnmapMemObject");
  get(a.enqueue_marker, "clEnqueueMarkerWithWaitList");
  get(a.enqueue_barrier, "clEnqueueBarrierWithWaitList");
  get(a.get_event_info, "clGetEventInfo");
  get(a.wait_events, "clWaitForEvents");
  get(a.release_event, "clReleaseEvent");
  get(a.flush, "clFlush");
  get(a.finish, "clFinish");
  return a;
}

}  // namespace

namespace {
std::atomic<const Api*> current = nullptr;
std::mutex loading;
std::vector<std::string>& chosen() {  // guarded by `loading`
  static auto* drivers = new std::vector<std::string>;
  return *drivers;
}
}  // namespace

const Api& api() {
  if (const Api* a = current.load(std::memory_order_acquire)) return *a;
  std::lock_guard hold(loading);
  if (const Api* a = current.load(std::memory_order_acquire)) return *a;
  Api made;
  if (chosen().empty())
    made = load();
  else
    open_drivers(chosen(), made);
  current.store(new Api(std::move(made)),
                std::memory_order_release);  // never destroyed, because events may be released at exit
  return *current.load();
}

void set_drivers(const std::vector<std::string>& drivers) {
  std::lock_guard hold(loading);
  std::vector<std::string> names = drivers;
  std::erase(names, "");
  if (names == chosen()) return;
  chosen() = std::move(names);
  current.store(nullptr, std::memory_order_release);
}

std::string code_text(Code code) {
  static constexpr std::pair<Code, const char*> names[] = {{-1, "CL_DEVICE_NOT_FOUND"},
                                                           {-2, "CL_DEVICE_NOT_AVAILABLE"},
                                                           {-3, "CL_COMPILER_NOT_AVAILABLE"},
                                                           {-4, "CL_MEM_OBJECT_ALLOCATION_FAILURE"},
                                                           {-5, "CL_OUT_OF_RESOURCES"},
                                                           {-6, "CL_OUT_OF_HOST_MEMORY"},
                                                           {-8, "CL_MEM_COPY_OVERLAP"},
                                                           {-11, "CL_BUILD_PROGRAM_FAILURE"},
                                                           {-13, "CL_MISALIGNED_SUB_BUFFER_OFFSET"},
                                                           {-14, "CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST"},
                                                           {-30, "CL_INVALID_VALUE"},
                                                           {-33, "CL_INVALID_DEVICE"},
                                                           {-34, "CL_INVALID_CONTEXT"},
                                                           {-36, "CL_INVALID_COMMAND_QUEUE"},
                                                           {-38, "CL_INVALID_MEM_OBJECT"},
                                                           {-43, "CL_INVALID_BUILD_OPTIONS"},
                                                           {-44, "CL_INVALID_PROGRAM"},
                                                           {-45, "CL_INVALID_PROGRAM_EXECUTABLE"},
                                                           {-46, "CL_INVALID_KERNEL_NAME"},
                                                           {-48, "CL_INVALID_KERNEL"},
                                                           {-49, "CL_INVALID_ARG_INDEX"},
                                                           {-50, "CL_INVALID_ARG_VALUE"},
                                                           {-51, "CL_INVALID_ARG_SIZE"},
                                                           {-52, "CL_INVALID_KERNEL_ARGS"},
                                                           {-53, "CL_INVALID_WORK_DIMENSION"},
                                                           {-54, "CL_INVALID_WORK_GROUP_SIZE"},
                                                           {-55, "CL_INVALID_WORK_ITEM_SIZE"},
                                                           {-58, "CL_INVALID_EVENT"},
                                                           {-59, "CL_INVALID_OPERATION"},
                                                           {-61, "CL_INVALID_BUFFER_SIZE"},
                                                           {-63, "CL_INVALID_GLOBAL_WORK_SIZE"},
                                                           {-1001, "CL_PLATFORM_NOT_FOUND_KHR"}};
  for (const auto& [value, name] : names)
    if (value == code) return std::string(name) + " (" + std::to_string(code) + ")";
  return "OpenCL error " + std::to_string(code);
}

void check(Code code, const char* function, const std::string& subject) {
  if (code == success) return;
  const std::string wrong = std::string(function) + " returned " + code_text(code);
  const std::string asked = subject.empty() ? "opencl" : subject;
  if (code == allocation_failure || code == out_of_resources || code == out_of_host_memory ||
      code == invalid_buffer_size)
    fail<OutOfMemory>({.operation = asked, .wrong = wrong, .remedy = "Free arrays, or work on smaller pieces"});
  if (code == failed_before)
    fail<KernelError>(
        {.operation = asked,
         .wrong = wrong,
         .remedy =
             "An earlier command failed, possibly in another queue. The queue of that command reports the error"});
  // If a device is lost, drivers report that the context or queue is invalid.
  constexpr Code first_invalid = -30, last_invalid = -72, invalid_context = -34, invalid_queue = -36;
  if (code <= first_invalid && code >= last_invalid && code != invalid_context && code != invalid_queue)
    fail<KernelError>(
        {.operation = asked, .wrong = wrong, .remedy = "The driver rejected this call; the device remains usable"});
  fail<DeviceLost>({.operation = asked,
                    .wrong = wrong,
                    .remedy = "Check whether clinfo, or another OpenCL program, works on this device"});
}

}  // namespace tessera::cl
