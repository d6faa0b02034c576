// SPDX-License-Identifier: Apache-2.0
// Sharing memory and queues with other libraries: DLPack in both directions, wrapped memory and queues, and foreign
// work in Tessera's queues.
#include <gtest/gtest.h>

#if __has_include(<dlpack/dlpack.h>)
#include <dlpack/dlpack.h>
#endif

#include <array>
#include <cstdio>
#include <cstring>

#include "tessera/array/dlpack.h"
#include "tessera/device/placement/placement_scope.h"
#include "tests/support/errors.h"
#include "tests/support/every_device.h"

namespace tessera {
namespace {

using dlpack::from_dlpack;
using dlpack::Managed;
using dlpack::ManagedVersioned;
using dlpack::Owned;
using dlpack::to_dlpack;
using dlpack::to_dlpack_unversioned;
using test::expect_contains;
using test::OnEveryDevice;
using test::text_of;
TESSERA_ON_EVERY_DEVICE();

std::uint64_t copies(const Placement& scope) {
  std::uint64_t n = 0;
  for (const auto& c : scope.log().copies) n += c.to_device_count + c.to_host_count + c.within_count;
  return n;
}

Array scalar(double value, Device device) { return Array::full({1}, value, DType::f32, device); }

/// Returns the device of an array that was exported and imported again. interp uses host memory, so its arrays return
/// on cpu.
Device comes_back_on(Device device) { return device.backend == Backend::interp ? Device{Backend::cpu, 0} : device; }

TEST_P(OnEveryDevice, DlpackRoundTripDoesNotCopy) {
  const auto data = numbers(60);
  const Array a = Array::from(data, Shape{3, 4, 5});
  const Placement scope;
  Owned<ManagedVersioned> out = to_dlpack(a);
  EXPECT_EQ(out->version.major, 1u);
  EXPECT_EQ(out->tensor.ndim, 3);
  EXPECT_EQ(out->tensor.dtype.code, dlpack::floating);
  EXPECT_EQ(out->tensor.dtype.bits, 32);
  EXPECT_EQ(out->tensor.device.id, GetParam().backend == Backend::interp ? 0 : device_info(GetParam()).native_index);
  Array b = from_dlpack(std::move(out));
  EXPECT_EQ(out, nullptr);
  EXPECT_EQ(b.device(), comes_back_on(GetParam()));
  EXPECT_EQ(b.view().storage->native_handle(), a.view().storage->native_handle());
  EXPECT_EQ(copies(scope), 0u);
  EXPECT_EQ(b.to_vector<float>(), data);
  // The memory is shared: a write through one array is visible through the other.
  b *= scalar(2, b.device());
  b.eval();
  Queue::of(b.device()).finish();
  const auto seen = a.to_vector<float>();
  for (std::size_t i = 0; i < data.size(); ++i) EXPECT_EQ(seen[i], 2 * data[i]);
}

TEST_P(OnEveryDevice, ImportedMemoryIsKeptUntilItsLastUserIsDestroyed) {
  const auto data = numbers(1000);
  Array b;
  {
    const Array a = Array::from(data);
    b = from_dlpack(to_dlpack_unversioned(a));
  }
  trim(GetParam());
  const Array poison = Array::full({1000}, -1.0);  // would reuse the memory if it had been freed
  poison.eval();
  EXPECT_EQ(b.slice(0, 10, 20).to_vector<float>(), std::vector<float>(data.begin() + 10, data.begin() + 20));
}

TEST_P(OnEveryDevice, ExportedViewsKeepTheirStrides) {
  const auto data = numbers(60);
  const Array a = Array::from(data, Shape{6, 10}), view = a.slice(0, 1, 6, 2).slice(1, 3, 9, 3).transpose();
  Owned<ManagedVersioned> out = to_dlpack(view);
  EXPECT_EQ(out->tensor.strides[0], 3);
  EXPECT_EQ(out->tensor.strides[1], 20);
  EXPECT_EQ(out->tensor.byte_offset, out->tensor.device.type == dlpack::opencl ? 13 * sizeof(float) : 0);
  const Array b = from_dlpack(std::move(out));
  EXPECT_EQ(b.shape(), view.shape());
  EXPECT_EQ(b.to_vector<float>(), view.to_vector<float>());
}

TEST_P(OnEveryDevice, ExportEvaluatesPendingArraysAndDisablesDeferral) {
  Array x = Array::ones({100});
  const Array z = x + 1.0;
  EXPECT_TRUE(z.pending());
  const Array back = from_dlpack(to_dlpack(x));  // from now on x may be written by other libraries
  EXPECT_FALSE(z.pending());
  EXPECT_FALSE((x + 1.0).pending());
  EXPECT_EQ(sum(z).item<float>(), 200.f);
}

TEST_P(OnEveryDevice, EveryDtypeHasADlpackTypeCode) {
  for (const DType dtype : storable_dtypes) {
    const Array a = Array::zeros({7}, dtype);
    const Array b = from_dlpack(to_dlpack(a));
    EXPECT_EQ(b.dtype(), dtype) << dtype_name(dtype);
    EXPECT_EQ(b.shape(), a.shape());
  }
  const Array nothing = from_dlpack(to_dlpack(Array::zeros({3, 0, 2})));
  EXPECT_EQ(nothing.shape(), (Shape{3, 0, 2}));
}

TEST_P(OnEveryDevice, ExportedDataPointsToTheFirstElementOfASlice) {
  const Array a = Array::from(numbers(60), Shape{6, 10}).eval();
  const Array part = a.slice(0, 2, 5);
  const Owned<ManagedVersioned> whole = to_dlpack(a), slice = to_dlpack(part);
  const bool address = whole->tensor.device.type != dlpack::opencl;
  const auto at = [](const Owned<ManagedVersioned>& t) { return static_cast<std::byte*>(t->tensor.data); };
  EXPECT_EQ(at(slice) - at(whole), address ? 80 : 0);
  EXPECT_EQ(slice->tensor.byte_offset, address ? 0u : 80u);
  const Owned<Managed> old = to_dlpack_unversioned(part);
  EXPECT_EQ(static_cast<std::byte*>(old->tensor.data), at(slice));
  EXPECT_EQ(old->tensor.byte_offset, slice->tensor.byte_offset);
  EXPECT_EQ(from_dlpack(to_dlpack(part)).to_vector<float>(), part.to_vector<float>());
}

TEST_P(OnEveryDevice, WorkInForeignStreamsIsOrdered) {
  Queue theirs(GetParam());
  void* const stream = theirs.native_handle();
  if (stream == nullptr) {  // on cpu and interp
    text_of<DeviceError>([&] { Queue::wrap(GetParam(), &theirs); });
    return;
  }
  const std::unique_ptr<Queue> wrapped = Queue::wrap(GetParam(), stream);
  EXPECT_EQ(wrapped->native_handle(), stream);
  for (int round = 0; round < 20; ++round) {
    const Array a = Array::full({5000}, round).eval();
    const Array b = from_dlpack(to_dlpack(a, stream), {.stream = stream});
    // Foreign work copies from Tessera's memory, and then overwrites that memory.
    const Array c = Array::empty({5000});
    wrapped->copy(c.view_for_writing(), b.view());
    wrapped->fill(b.view_for_writing(), 0x3f800000);
    EXPECT_EQ(sum(c).item<float>(), 5000.f * static_cast<float>(round));
    EXPECT_EQ(sum(b + 1.0).item<float>(), 10000.f);
  }
}

TEST_P(OnEveryDevice, WrappedQueueMayBeDestroyedBeforeItsWorkIsDone) {
  Queue theirs(GetParam());
  void* const stream = theirs.native_handle();
  if (stream == nullptr) return;
  const Array a = Array::full({100000}, 3.0).eval(), b = Array::zeros({100000}).eval();
  {
    const std::unique_ptr<Queue> wrapped = Queue::wrap(GetParam(), stream);
    wrapped->copy(b.view_for_writing(), a.view());
  }
  EXPECT_EQ(sum(b).item<float>(), 300000.f);
  EXPECT_EQ(theirs.native_handle(), stream) << "it is owned elsewhere and still exists";
  theirs.finish();
}

TEST_P(OnEveryDevice, NativeWorkIsOrderedByItsDeclaredAccesses) {
  const Device device = GetParam();
  Queue& queue = Queue::of(device);
  Array x = Array::from(numbers(1000)), y = Array::zeros({1000});
  x += scalar(1, device);
  const Array pending = y + 5.0;  // still needs the zeros in y
  const std::array reads = {x.view()}, writes = {y.view_for_writing()};
  EXPECT_FALSE(pending.pending());
  int calls = 0;
  queue.submit_native("foreign copy", reads, writes, [&](void* native) {
    ++calls;
    EXPECT_EQ(native == nullptr, device.backend == Backend::cpu || device.backend == Backend::interp);
    if (native == nullptr)
      std::memcpy(writes[0].storage->native_handle(), reads[0].storage->native_handle(), writes[0].bytes());
  });
  EXPECT_EQ(calls, 1);
  if (device.backend == Backend::cpu || device.backend == Backend::interp) {
    EXPECT_EQ(y.to_vector<float>(), x.to_vector<float>());
  }
  EXPECT_EQ(sum(pending).item<float>(), 5000.f);
  const Device other = device.backend == Backend::cpu ? Device{Backend::interp, 0} : Device{Backend::cpu, 0};
  expect_contains(text_of<DeviceError>([&] { Queue::of(other).submit_native("x", reads, {}, [](void*) {}); }),
                  {to_string(other), to_string(device)});
}

/// A tensor of another library in host memory.
struct Foreign {
  std::vector<float> data = {1, 2, 3, 4, 5, 6};
  std::array<std::int64_t, 2> shape = {2, 3}, strides = {3, 1};
  int deleted = 0;
  ManagedVersioned tensor{{1, 0},
                          this,
                          [](ManagedVersioned* t) { ++static_cast<Foreign*>(t->manager_context)->deleted; },
                          0,
                          {data.data(), {dlpack::cpu, 0}, 2, {dlpack::floating, 32, 1}, shape.data(), nullptr, 0}};
  Owned<ManagedVersioned> take() { return Owned<ManagedVersioned>(&tensor); }
};

TEST(ForeignTensors, AreUsedInPlaceAndReleasedOnce) {
  Foreign theirs;
  {
    Array a = from_dlpack(theirs.take());
    EXPECT_EQ(a.device(), (Device{Backend::cpu, 0}));
    EXPECT_EQ(a.host_access().data(), theirs.data.data());
    Array column = a.select(1, 2);
    a = Array();
    EXPECT_EQ(theirs.deleted, 0) << "a view still exists";
    column += scalar(10, column.device());
    column.eval();
    EXPECT_EQ(theirs.data, (std::vector<float>{1, 2, 13, 4, 5, 16}));
  }
  EXPECT_EQ(theirs.deleted, 1);
  theirs.tensor.tensor.strides = theirs.strides.data();
  theirs.strides = {1, 2};
  EXPECT_EQ(from_dlpack(theirs.take()).to_vector<float>(), (std::vector<float>{1, 13, 5, 2, 4, 16}));
  EXPECT_EQ(theirs.deleted, 2);
}

TEST(ForeignTensors, ReadOnlyTensorsAreCopiedOnRequest) {
  Foreign theirs;
  theirs.tensor.flags = dlpack::flag_read_only;
  Owned<ManagedVersioned> tensor = theirs.take();
  expect_contains(text_of<ArgumentError>([&] { from_dlpack(std::move(tensor)); }), {"read-only", "copy = true"});
  ASSERT_NE(tensor, nullptr) << "still owned by the caller";
  Array a = from_dlpack(std::move(tensor), {.stream = {}, .copy = true});
  EXPECT_EQ(theirs.deleted, 1) << "released immediately";
  a += scalar(1, a.device());
  EXPECT_EQ(a.to_vector<float>(), (std::vector<float>{2, 3, 4, 5, 6, 7}));
  EXPECT_EQ(theirs.data[0], 1.f);
}

TEST(ForeignTensors, InvalidTensorsAreRejectedAndRemainOwnedByTheCaller) {
  const auto refused = [](auto change, auto error, std::initializer_list<std::string> parts) {
    Foreign theirs;
    change(theirs);
    Owned<ManagedVersioned> tensor = theirs.take();
    expect_contains(text_of<decltype(error)>([&] { from_dlpack(std::move(tensor)); }), parts);
    EXPECT_EQ(theirs.deleted, 0);
    EXPECT_NE(tensor.release(), nullptr);
  };
  const ArgumentError argument("");
  const DtypeError dtype("");
  const DeviceError device("");
  refused([](Foreign& f) { f.tensor.version.major = 2; }, argument, {"2.0", "1.x"});
  refused([](Foreign& f) { f.tensor.tensor.data = nullptr; }, argument, {"data is null"});
  refused([](Foreign& f) { f.tensor.tensor.shape = nullptr; }, argument, {"shape is null"});
  refused([](Foreign& f) { f.tensor.tensor.ndim = -1; }, argument, {"dimensions = -1"});
  refused([](Foreign& f) { f.tensor.tensor.ndim = 1 << 30; }, argument, {"out of range"});
  refused([](Foreign& f) { f.shape = {2, -3}; }, argument, {"negative"});
  refused([](Foreign& f) { f.shape = {std::int64_t{1} << 40, std::int64_t{1} << 40}; }, argument, {"2^48"});
  refused([](Foreign& f) { f.strides = {-3, 1}, f.tensor.tensor.strides = f.strides.data(); }, argument, {"negative"});
  refused(
      [](Foreign& f) {
        f.strides = {INT64_MAX, 1}, f.tensor.tensor.strides = f.strides.data();
      },
      argument, {"strides"});
  refused([](Foreign& f) { f.tensor.tensor.byte_offset = 2; }, argument, {"offset"});
  refused([](Foreign& f) { f.tensor.tensor.byte_offset = ~std::uint64_t{3}; }, argument, {"offset"});
  refused([](Foreign& f) { f.tensor.tensor.dtype = {5, 64, 1}; }, dtype, {"complex64"});
  refused([](Foreign& f) { f.tensor.tensor.dtype.lanes = 4; }, dtype, {"float32 x 4"});
  refused([](Foreign& f) { f.tensor.tensor.dtype = {17, 8, 1}; }, dtype, {"unknown"});
  refused(
      [](Foreign& f) {
        f.tensor.tensor.device = {7, 0};
      },
      device, {"device type = 7", "Supported device types are"});
  refused([](Foreign& f) { f.tensor.tensor.device = {dlpack::cuda, 63}; }, device, {"cuda", "63"});
  expect_contains(text_of<ArgumentError>([] { from_dlpack(Owned<Managed>()); }), {"null"});
}

TEST(WrappedMemory, IsUsedInPlaceAndKeepsItsOwnerAlive) {
  for (const Device device : {Device{Backend::cpu, 0}, Device{Backend::interp, 0}}) {
    auto memory = std::make_shared<std::vector<float>>(100, 2.0f);
    const std::weak_ptr<std::vector<float>> watched = memory;
    {
      Array a = Array::wrap(Storage::wrap_device(device, memory->data(), 400, memory), DType::f32, {100});
      memory.reset();
      EXPECT_FALSE(watched.expired());
      a *= scalar(3, device);
      a.eval();
      EXPECT_EQ((*watched.lock())[99], 6.0f);
    }
    EXPECT_TRUE(watched.expired());
  }
  expect_contains(text_of<ArgumentError>([] {
                    Storage::wrap_device({Backend::cpu, 0}, nullptr, 4, nullptr);
                  }),
                  {"null"});
}

TEST(DlpackStructures, MatchTheDlpackHeader) {
  // The expected sizes and offsets are from https://dmlc.github.io/dlpack/latest/c_api.html, for 64-bit systems.
  EXPECT_EQ(sizeof(dlpack::Tensor), 48u);
  EXPECT_EQ(offsetof(dlpack::Tensor, ndim), 16u);
  EXPECT_EQ(offsetof(dlpack::Tensor, dtype), 20u);
  EXPECT_EQ(offsetof(dlpack::Tensor, shape), 24u);
  EXPECT_EQ(offsetof(dlpack::Tensor, byte_offset), 40u);
  EXPECT_EQ(offsetof(Managed, deleter), 56u);
  EXPECT_EQ(offsetof(ManagedVersioned, flags), 24u);
  EXPECT_EQ(offsetof(ManagedVersioned, tensor), 32u);
#if __has_include(<dlpack/dlpack.h>)
  EXPECT_EQ(sizeof(dlpack::Tensor), sizeof(DLTensor));
  EXPECT_EQ(sizeof(Managed), sizeof(DLManagedTensor));
  EXPECT_EQ(offsetof(dlpack::Tensor, strides), offsetof(DLTensor, strides));
  EXPECT_EQ(offsetof(Managed, manager_context), offsetof(DLManagedTensor, manager_ctx));
  EXPECT_EQ(static_cast<int>(dlpack::rocm), static_cast<int>(kDLROCM));
  EXPECT_EQ(static_cast<int>(dlpack::bfloat), static_cast<int>(kDLBfloat));
#else
  std::puts("dlpack/dlpack.h (libdlpack-dev) is not installed: compared only with the numbers of its documentation");
#endif
}

}  // namespace
}  // namespace tessera
