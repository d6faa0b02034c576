// SPDX-License-Identifier: Apache-2.0
// Arrays in the C interface.
#include "tessera/array/array.h"

#include <algorithm>

#include "tessera/array/dlpack.h"
#include "tessera/array/index.h"
#include "tessera/c/status.h"

namespace tessera::c {

static_assert(static_cast<int>(DType::boolean) == TESSERA_BOOL && static_cast<int>(DType::i8) == TESSERA_I8 &&
              static_cast<int>(DType::u8) == TESSERA_U8 && static_cast<int>(DType::i16) == TESSERA_I16 &&
              static_cast<int>(DType::u16) == TESSERA_U16 && static_cast<int>(DType::i32) == TESSERA_I32 &&
              static_cast<int>(DType::u32) == TESSERA_U32 && static_cast<int>(DType::i64) == TESSERA_I64 &&
              static_cast<int>(DType::u64) == TESSERA_U64 && static_cast<int>(DType::f16) == TESSERA_F16 &&
              static_cast<int>(DType::bf16) == TESSERA_BF16 && static_cast<int>(DType::f32) == TESSERA_F32 &&
              static_cast<int>(DType::f64) == TESSERA_F64);

namespace {

bool is_dtype(tessera_dtype dtype) { return dtype >= TESSERA_BOOL && dtype <= TESSERA_F64; }

tessera_array* handle_of(named::Operand operand) { return new tessera_array{std::move(operand)}; }

void require_bytes(const char* function, const Array& array, std::size_t bytes) {
  if (bytes != array.bytes())
    fail<ArgumentError>({.operation = function,
                         .with = {{"bytes", std::to_string(bytes)}, {"array", std::to_string(array.bytes())}},
                         .wrong = "'bytes' is not the size of the elements"});
}

named::Attribute attribute_of(const tessera_attribute& a) {
  named::Attribute out{&required("tessera_apply", "the name of an attribute", a.name), {}};
  switch (a.kind) {
    case TESSERA_INTEGER: out.value = a.integer; break;
    case TESSERA_NUMBER: out.value = a.number; break;
    case TESSERA_LIST: {
      const auto list = required_span("tessera_apply", "list", a.list, a.count);
      out.value = std::vector<std::int64_t>(list.begin(), list.end());
      break;
    }
    case TESSERA_TEXT: out.value = std::string(&required("tessera_apply", "text", a.text)); break;
    default:
      fail<ArgumentError>({.operation = "tessera_apply",
                           .with = {{"attribute", std::string(a.name)}, {"kind", std::to_string(a.kind)}},
                           .wrong = "the attribute has an unknown kind"});
  }
  return out;
}

AxisIndex index_of(const tessera_index& i) {
  const auto bound = [](std::int64_t v) { return v == TESSERA_OPEN ? std::nullopt : std::optional(v); };
  switch (i.kind) {
    case TESSERA_AT: return i.begin;
    case TESSERA_SLICE: return Slice{bound(i.begin), bound(i.end), i.step};
    case TESSERA_NEW_AXIS: return NewAxis{};
    case TESSERA_ELLIPSIS: return Ellipsis{};
    default:
      fail<ArgumentError>({.operation = "tessera_array_index",
                           .with = {{"kind", std::to_string(i.kind)}},
                           .wrong = "an index has an unknown kind"});
  }
}

/// Imports a tensor of either form. The caller keeps it if the import fails.
template <class M>
Array import_tensor(M* tensor, bool copy) {
  dlpack::Owned<M> owned(&required("tessera_array_from_dlpack", "tensor", tensor));
  try {
    return dlpack::from_dlpack(std::move(owned), {.copy = copy});
  } catch (...) {
    owned.release();
    throw;
  }
}

}  // namespace

const Array& array_of(const char* function, const char* name, const tessera_array* handle) {
  const Array* array = std::get_if<Array>(&required(function, name, handle).operand);
  if (array == nullptr)
    fail<ArgumentError>({.operation = function,
                         .wrong = "'" + std::string(name) + "' is a number, but must be an array",
                         .remedy = "Create an array with tessera_array_create()"});
  return *array;
}

}  // namespace tessera::c

using namespace tessera;
using namespace tessera::c;

extern "C" {

size_t tessera_dtype_size(tessera_dtype dtype) { return is_dtype(dtype) ? dtype_size(static_cast<DType>(dtype)) : 0; }
const char* tessera_dtype_name(tessera_dtype dtype) {
  return is_dtype(dtype) ? dtype_name(static_cast<DType>(dtype)).data() : "";
}

tessera_status tessera_array_create(const void* data, tessera_dtype dtype, const int64_t* shape, size_t rank,
                                    const tessera_device* device, tessera_array** array) {
  return guard_result(__func__, array, [&] {
    if (!is_dtype(dtype))
      fail<DtypeError>({.operation = "tessera_array_create",
                        .with = {{"dtype", std::to_string(dtype)}},
                        .wrong = "there is no such dtype"});
    const auto extents = required_span("tessera_array_create", "shape", shape, rank);
    const Shape to(extents.begin(), extents.end());
    check_shape("tessera_array_create", to);
    const auto type = static_cast<DType>(dtype);
    return handle_of(data != nullptr ? named::from_host(data, type, to, device_of(device))
                                     : Array::empty(to, type, device_of(device)));
  });
}
tessera_status tessera_array_number(double value, tessera_array** array) {
  return guard_result(__func__, array, [&] { return handle_of(value); });
}
tessera_status tessera_array_integer(int64_t value, tessera_array** array) {
  return guard_result(__func__, array, [&] { return handle_of(value); });
}
tessera_status tessera_array_share(const tessera_array* from, tessera_array** array) {
  return guard_result(__func__, array,
                      [&] { return handle_of(required("tessera_array_share", "from", from).operand); });
}
void tessera_array_free(tessera_array* array) { delete array; }

tessera_status tessera_get_array_info(const tessera_array* array, tessera_array_info* info) {
  return guard([&] {
    const Array& a = array_of("tessera_get_array_info", "array", array);
    write_sized("tessera_get_array_info", "info", info,
                {.size = 0,
                 .dtype = static_cast<std::int32_t>(a.dtype()),
                 .rank = a.rank(),
                 .shape = a.shape().data(),
                 .strides = a.strides().data(),
                 .elements = a.size(),
                 .bytes = a.bytes(),
                 .device = c_device(a.device()),
                 .contiguous = a.contiguous(),
                 .pending = a.pending()});
  });
}
tessera_status tessera_array_read(const tessera_array* array, void* to, size_t bytes) {
  return guard([&] {
    const Array& a = array_of("tessera_array_read", "array", array);
    require_bytes("tessera_array_read", a, bytes);
    if (bytes > 0) required("tessera_array_read", "to", static_cast<char*>(to));
    a.download(to);
  });
}
tessera_status tessera_array_write(tessera_array* array, const void* from, size_t bytes) {
  return guard([&] {
    Array a = array_of("tessera_array_write", "array", array);
    require_bytes("tessera_array_write", a, bytes);
    if (bytes == 0) return;
    required("tessera_array_write", "from", static_cast<const char*>(from));
    a.assign(named::from_host(from, a.dtype(), a.shape(), a.device()));
  });
}
tessera_status tessera_array_assign(tessera_array* array, const tessera_array* value) {
  return guard([&] {
    Array a = array_of("tessera_array_assign", "array", array);
    a.assign(named::array_of(required("tessera_array_assign", "value", value).operand, a.dtype(), a.device()));
  });
}
tessera_status tessera_array_eval(const tessera_array* const* arrays, size_t count) {
  return guard([&] {
    std::vector<Array> all;
    for (const tessera_array* a : required_span("tessera_array_eval", "arrays", arrays, count))
      all.push_back(array_of("tessera_array_eval", "arrays", a));
    eval(all);
  });
}
tessera_status tessera_array_to(const tessera_array* from, tessera_device device, tessera_array** array) {
  return guard_result(__func__, array, [&] {
    const Device to = device_of(device);
    device_info(to);
    return handle_of(array_of("tessera_array_to", "from", from).to(to));
  });
}
tessera_status tessera_array_text(const tessera_array* array, char** text) {
  return guard_result(__func__, text,
                      [&] { return text_copy(to_string(array_of("tessera_array_text", "array", array))); });
}
tessera_status tessera_array_save(const tessera_array* array, const char* path) {
  return guard(
      [&] { save_npy(array_of("tessera_array_save", "array", array), &required("tessera_array_save", "path", path)); });
}
tessera_status tessera_array_load(const char* path, const tessera_device* device, tessera_array** array) {
  return guard_result(__func__, array, [&] {
    return handle_of(load_npy(&required("tessera_array_load", "path", path), device_of(device)));
  });
}
tessera_status tessera_array_index(const tessera_array* from, const tessera_index* indices, size_t count,
                                   tessera_array** array) {
  return guard_result(__func__, array, [&] {
    std::vector<AxisIndex> all;
    for (const tessera_index& i : required_span("tessera_array_index", "indices", indices, count))
      all.push_back(index_of(i));
    return handle_of(index(array_of("tessera_array_index", "from", from), all));
  });
}

tessera_status tessera_apply(const char* name, const tessera_array* const* operands, size_t operand_count,
                             const tessera_attribute* attributes, size_t attribute_count, tessera_array** results,
                             size_t* count) {
  return guard([&] {
    const char* const self = "tessera_apply";
    required(self, "name", name);
    const std::size_t room = required(self, "count", count);
    if (room > 0) std::fill_n(&required(self, "results", results), room, nullptr);
    std::vector<named::Operand> given;
    for (const tessera_array* a : required_span(self, "operands", operands, operand_count))
      given.push_back(required(self, "an operand", a).operand);
    std::vector<named::Attribute> with;
    for (const tessera_attribute& a : required_span(self, "attributes", attributes, attribute_count))
      with.push_back(attribute_of(a));
    std::vector<Array> made = named::apply(name, given, with);
    if (made.size() > room)
      fail<ArgumentError>({.operation = name,
                           .with = {{"results", std::to_string(made.size())}, {"count", std::to_string(room)}},
                           .wrong = "there are more results than 'results' has room for"});
    std::vector<std::unique_ptr<tessera_array>> handles;
    for (Array& a : made) handles.emplace_back(handle_of(std::move(a)));
    for (std::size_t i = 0; i < handles.size(); ++i) results[i] = handles[i].release();
    *count = made.size();
  });
}
size_t tessera_operation_count(void) { return named::operations().size(); }
const char* tessera_operation(size_t i) { return i < named::operations().size() ? named::operations()[i] : nullptr; }

tessera_status tessera_array_to_dlpack(const tessera_array* array, struct DLManagedTensorVersioned** tensor) {
  return guard_result(__func__, tensor, [&] {
    return reinterpret_cast<DLManagedTensorVersioned*>(
        dlpack::to_dlpack(array_of("tessera_array_to_dlpack", "array", array)).release());
  });
}
tessera_status tessera_array_to_dlpack_unversioned(const tessera_array* array, struct DLManagedTensor** tensor) {
  return guard_result(__func__, tensor, [&] {
    return reinterpret_cast<DLManagedTensor*>(
        dlpack::to_dlpack_unversioned(array_of("tessera_array_to_dlpack_unversioned", "array", array)).release());
  });
}
tessera_status tessera_array_from_dlpack(struct DLManagedTensorVersioned* tensor, bool copy, tessera_array** array) {
  return guard_result(__func__, array, [&] {
    return handle_of(import_tensor(reinterpret_cast<dlpack::ManagedVersioned*>(tensor), copy));
  });
}
tessera_status tessera_array_from_dlpack_unversioned(struct DLManagedTensor* tensor, bool copy, tessera_array** array) {
  return guard_result(__func__, array,
                      [&] { return handle_of(import_tensor(reinterpret_cast<dlpack::Managed*>(tensor), copy)); });
}

}  // extern "C"
