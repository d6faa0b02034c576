/* SPDX-License-Identifier: Apache-2.0 */
/* Tests the C interface from C11: devices, arrays, operations by name, indexing, DLPack, kernels, language models, and
 * the errors for invalid arguments. tests/c/check compiles it with gcc and clang. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <tessera/c/tessera.h>

static int failures = 0;

static void check(bool ok, const char* what, int line) {
  if (ok) return;
  fprintf(stderr, "interface_test.c:%d: FAILED: %s (last error: %s)\n", line, what, tessera_last_error());
  ++failures;
}
#define CHECK(condition) check(condition, #condition, __LINE__)
#define OK(call) check((call) == TESSERA_OK, #call, __LINE__)

/* Checks that a call fails with this status and that the message contains `part`. */
static void fails(tessera_status status, tessera_status wanted, const char* part, int line) {
  if (status == wanted && strstr(tessera_last_error(), part) != NULL) return;
  fprintf(stderr, "interface_test.c:%d: status '%s' and '%s' instead of '%s' and '%s'\n", line,
          tessera_status_name(status), tessera_last_error(), tessera_status_name(wanted), part);
  ++failures;
}
#define FAILS(call, status, part) fails(call, status, part, __LINE__)

static tessera_array* floats(const float* values, int64_t rows, int64_t columns) {
  tessera_array* out = NULL;
  OK(tessera_array_create(values, TESSERA_F32, (int64_t[]){rows, columns}, 2, NULL, &out));
  return out;
}
/* Calls an operation with up to two operands and up to two attributes, and returns its only result. */
static tessera_array* apply(const char* name, const tessera_array* a, const tessera_array* b,
                            const tessera_attribute* attributes, size_t count) {
  const tessera_array* operands[] = {a, b};
  tessera_array* out = NULL;
  size_t results = 1;
  OK(tessera_apply(name, operands, (size_t)(a != NULL) + (b != NULL), attributes, count, &out, &results));
  CHECK(results == 1);
  return out;
}
/* Reads an array of up to 16 floats and frees the handle. */
static const float* take(tessera_array* a) {
  static float values[16];
  tessera_array_info info = {.size = sizeof info};
  OK(tessera_get_array_info(a, &info));
  CHECK(info.dtype == TESSERA_F32 && info.bytes <= sizeof values);
  OK(tessera_array_read(a, values, (size_t)info.bytes));
  tessera_array_free(a);
  return values;
}

static void devices(void) {
  CHECK(tessera_abi_version() == TESSERA_ABI_VERSION);
  CHECK(strchr(tessera_version(), '.') != NULL);
  size_t count = 0;
  OK(tessera_get_devices(NULL, 0, &count));
  CHECK(count >= 1);
  tessera_device first;
  OK(tessera_get_devices(&first, 1, &count));
  CHECK(first.backend == TESSERA_CPU && first.index == 0);

  tessera_device_info info = {.size = sizeof info};
  OK(tessera_get_device_info(first, &info));
  CHECK(strcmp(info.text, "cpu:0") == 0 && info.total_memory > 0 && info.compute_units > 0 && info.name[0] != 0);
  struct {
    tessera_device_info info;
    char guard[16];
  } small;
  memset(&small, 7, sizeof small);
  small.info.size = offsetof(tessera_device_info, name);  /* a program that knows fewer fields */
  OK(tessera_get_device_info(first, &small.info));
  CHECK(strcmp(small.info.text, "cpu:0") == 0 && small.info.compute_units == 0x07070707);
  small.info.size = 0;
  FAILS(tessera_get_device_info(first, &small.info), TESSERA_ARGUMENT_ERROR, "'size' is not set");

  tessera_backend_report report = {.size = sizeof report};
  for (int b = TESSERA_CPU; b <= TESSERA_INTERP; ++b) {
    OK(tessera_get_backend_report((tessera_backend)b, &report));
    CHECK(report.name[0] != 0);
    CHECK(report.state >= TESSERA_ENUMERATED || report.reason[0] != 0);
  }
  FAILS(tessera_get_backend_report((tessera_backend)99, &report), TESSERA_DEVICE_ERROR, "there is no such backend");

  tessera_device parsed;
  OK(tessera_parse_device("interp", &parsed));
  CHECK(parsed.backend == TESSERA_INTERP && parsed.index == 0);
  FAILS(tessera_parse_device("gpu:x", &parsed), TESSERA_DEVICE_ERROR, "gpu:x");
  FAILS(tessera_parse_device(NULL, &parsed), TESSERA_ARGUMENT_ERROR, "'text' is NULL");
  OK(tessera_set_current_device(&parsed));
  tessera_device current;
  OK(tessera_get_current_device(&current));
  CHECK(current.backend == TESSERA_INTERP);
  OK(tessera_set_current_device(NULL));
  parsed.index = 99;
  FAILS(tessera_set_current_device(&parsed), TESSERA_DEVICE_ERROR, "99");
  char* why = NULL;
  OK(tessera_why_current_device(&why));
  CHECK(why != NULL && strlen(why) > 10);
  tessera_string_free(why);
  uint64_t bytes = 0;
  OK(tessera_free_memory(first, &bytes));
  CHECK(bytes > 0);
  OK(tessera_synchronize());
}

static void arrays(void) {
  const float values[] = {1, 2, 3, 4, 5, 6};
  tessera_array* x = floats(values, 2, 3);
  tessera_array* two = NULL;
  OK(tessera_array_number(2, &two));
  tessera_array* y = apply("multiply", x, two, NULL, 0);
  tessera_array_info info = {.size = sizeof info};
  OK(tessera_get_array_info(y, &info));
  CHECK(info.rank == 2 && info.shape[0] == 2 && info.shape[1] == 3 && info.strides[0] == 3 && info.elements == 6);
  CHECK(info.pending && info.contiguous);
  const tessera_array* const all[] = {y};
  OK(tessera_array_eval(all, 1));
  OK(tessera_get_array_info(y, &info));
  CHECK(!info.pending);

  const tessera_attribute axis = {.name = "axes", .kind = TESSERA_INTEGER, .integer = 1};
  const float* sums = take(apply("sum", y, NULL, &axis, 1));
  CHECK(sums[0] == 12 && sums[1] == 30);

  tessera_array* integer = NULL;
  OK(tessera_array_integer(3, &integer));
  CHECK(take(apply("add", integer, x, NULL, 0))[5] == 9);
  tessera_array_free(integer);

  /* Views share memory. */
  const tessera_index last = {.kind = TESSERA_AT, .begin = -1};
  const tessera_index odd[] = {{.kind = TESSERA_ELLIPSIS},
                               {.kind = TESSERA_SLICE, .begin = TESSERA_OPEN, .end = TESSERA_OPEN, .step = 2}};
  tessera_array* row = NULL;
  OK(tessera_array_index(x, &last, 1, &row));
  tessera_array* columns = NULL;
  OK(tessera_array_index(x, odd, 2, &columns));
  OK(tessera_array_assign(row, two));
  const float* seen = take(columns);
  CHECK(seen[0] == 1 && seen[1] == 3 && seen[2] == 2 && seen[3] == 2);
  const float seven[] = {7, 8, 9};
  OK(tessera_array_write(row, seven, sizeof seven));
  CHECK(take(row)[2] == 9);
  const tessera_index zero_step = {.kind = TESSERA_SLICE, .begin = 0, .end = 1, .step = 0};
  FAILS(tessera_array_index(x, &zero_step, 1, &row), TESSERA_ARGUMENT_ERROR, "the step of a slice is 0");
  CHECK(row == NULL);
  const tessera_index far = {.kind = TESSERA_AT, .begin = 2};
  FAILS(tessera_array_index(x, &far, 1, &row), TESSERA_SHAPE_ERROR, "2");
  const tessera_index omitted = {.kind = TESSERA_AT, .begin = TESSERA_OPEN};
  FAILS(tessera_array_index(x, &omitted, 1, &row), TESSERA_SHAPE_ERROR, "-9223372036854775808");

  /* Numbers outside of the range of a dtype. */
  tessera_array *bytes = NULL, *large_number = NULL, *fraction = NULL;
  OK(tessera_array_create((const uint8_t[]){1, 2}, TESSERA_U8, (int64_t[]){2}, 1, NULL, &bytes));
  OK(tessera_array_integer(256, &large_number));
  FAILS(tessera_array_assign(bytes, large_number), TESSERA_DTYPE_ERROR, "256");
  tessera_array_free(large_number);
  for (int i = 0; i < 3; ++i) {
    OK(tessera_array_number((const double[]){-1, 1e300, NAN}[i], &large_number));
    FAILS(tessera_array_assign(bytes, large_number), TESSERA_DTYPE_ERROR, "does not fit in u8");
    tessera_array_free(large_number);
  }
  uint8_t pair[2];
  OK(tessera_array_read(bytes, pair, sizeof pair));
  CHECK(pair[0] == 1 && pair[1] == 2);
  OK(tessera_array_number(255.5, &fraction));
  OK(tessera_array_assign(bytes, fraction));
  OK(tessera_array_read(bytes, pair, sizeof pair));
  CHECK(pair[0] == 255 && pair[1] == 255);
  tessera_array_free(fraction);
  tessera_array_free(bytes);

  /* Several results. */
  tessera_array* parts[3] = {NULL, NULL, NULL};
  size_t count = 3;
  const tessera_attribute split[] = {{.name = "sections", .kind = TESSERA_INTEGER, .integer = 3},
                                     {.name = "axis", .kind = TESSERA_INTEGER, .integer = 1}};
  const tessera_array* operands[] = {x};
  OK(tessera_apply("split", operands, 1, split, 2, parts, &count));
  CHECK(count == 3);
  for (size_t i = 0; i < count; ++i) CHECK(take(parts[i])[0] == values[i]);
  count = 2;
  FAILS(tessera_apply("split", operands, 1, split, 2, parts, &count), TESSERA_ARGUMENT_ERROR, "more results");
  CHECK(parts[0] == NULL);

  /* An array that is created by name, on a named device. */
  const int64_t shape[] = {2, 2};
  const tessera_attribute full[] = {{.name = "shape", .kind = TESSERA_LIST, .list = shape, .count = 2},
                                    {.name = "value", .kind = TESSERA_NUMBER, .number = 0.5},
                                    {.name = "dtype", .kind = TESSERA_TEXT, .text = "f64"},
                                    {.name = "device", .kind = TESSERA_TEXT, .text = "interp:0"}};
  tessera_array* half = apply("full", NULL, NULL, full, 4);

  /* 64-bit integers are exact. */
  const int64_t large = INT64_C(9007199254740993); /* 2^53 + 1 */
  const tessera_attribute filled[] = {{.name = "shape", .kind = TESSERA_LIST, .list = shape, .count = 2},
                                      {.name = "value", .kind = TESSERA_INTEGER, .integer = large},
                                      {.name = "dtype", .kind = TESSERA_TEXT, .text = "i64"}};
  const tessera_attribute sequence[] = {{.name = "count", .kind = TESSERA_INTEGER, .integer = 4},
                                        {.name = "start", .kind = TESSERA_INTEGER, .integer = large},
                                        {.name = "step", .kind = TESSERA_INTEGER, .integer = 2},
                                        {.name = "dtype", .kind = TESSERA_TEXT, .text = "u64"}};
  tessera_array* exact[] = {apply("full", NULL, NULL, filled, 3), apply("arange", NULL, NULL, sequence, 4)};
  int64_t fours[4];
  OK(tessera_array_read(exact[0], fours, sizeof fours));
  CHECK(fours[0] == large && fours[3] == large);
  OK(tessera_array_read(exact[1], fours, sizeof fours));
  CHECK(fours[0] == large && fours[3] == large + 6);
  for (int i = 0; i < 2; ++i) tessera_array_free(exact[i]);
  OK(tessera_get_array_info(half, &info));
  CHECK(info.dtype == TESSERA_F64 && info.device.backend == TESSERA_INTERP);
  tessera_array* moved = NULL;
  OK(tessera_array_to(half, (tessera_device){TESSERA_CPU, 0}, &moved));
  OK(tessera_get_array_info(moved, &info));
  CHECK(info.device.backend == TESSERA_CPU);
  FAILS(tessera_apply("add", (const tessera_array*[]){half, moved}, 2, NULL, 0, parts, &count), TESSERA_DEVICE_ERROR,
        "interp:0");
  char* text = NULL;
  OK(tessera_array_text(moved, &text));
  CHECK(strstr(text, "0.5") != NULL);
  tessera_string_free(text);
  tessera_array_free(half);
  tessera_array_free(moved);

  /* Every operation has a signature; errors name it. */
  CHECK(tessera_operation_count() > 100 && tessera_operation(tessera_operation_count()) == NULL);
  count = 1;
  FAILS(tessera_apply("summ", operands, 1, NULL, 0, parts, &count), TESSERA_ARGUMENT_ERROR, "Similar names: sum");
  FAILS(tessera_apply("sum", operands, 0, NULL, 0, parts, &count), TESSERA_ARGUMENT_ERROR, "sum(a; axes, keep)");
  FAILS(tessera_apply("sum", operands, 1, split, 1, parts, &count), TESSERA_ARGUMENT_ERROR, "no attribute 'sections'");
  FAILS(tessera_apply("reshape", operands, 1, NULL, 0, parts, &count), TESSERA_ARGUMENT_ERROR, "'shape' is missing");
  const tessera_attribute text_axis = {.name = "axes", .kind = TESSERA_TEXT, .text = "first"};
  FAILS(tessera_apply("sum", operands, 1, &text_axis, 1, parts, &count), TESSERA_ARGUMENT_ERROR,
        "must be a list of integers");
  const tessera_attribute bad_kind = {.name = "axes", .kind = 9};
  FAILS(tessera_apply("sum", operands, 1, &bad_kind, 1, parts, &count), TESSERA_ARGUMENT_ERROR, "unknown kind");
  FAILS(tessera_apply("matmul", (const tessera_array*[]){x, x}, 2, NULL, 0, parts, &count), TESSERA_SHAPE_ERROR,
        "matmul");
  FAILS(tessera_apply("add", (const tessera_array*[]){x, NULL}, 2, NULL, 0, parts, &count), TESSERA_ARGUMENT_ERROR,
        "is NULL");
  FAILS(tessera_array_create(values, (tessera_dtype)77, NULL, 0, NULL, &row), TESSERA_DTYPE_ERROR, "no such dtype");
  FAILS(tessera_array_create(values, TESSERA_F32, (int64_t[]){-1}, 1, NULL, &row), TESSERA_SHAPE_ERROR, "-1");
  FAILS(tessera_array_read(x, NULL, 24), TESSERA_ARGUMENT_ERROR, "'to' is NULL");
  float room[6];
  FAILS(tessera_array_read(x, room, 20), TESSERA_ARGUMENT_ERROR, "not the size of the elements");
  FAILS(tessera_get_array_info(two, &info), TESSERA_ARGUMENT_ERROR, "is a number");
  FAILS(tessera_array_create(values, TESSERA_F32, NULL, 0, NULL, NULL), TESSERA_ARGUMENT_ERROR, "result is NULL");

  /* Files. */
  const char* folder = getenv("TESSERA_TEST_FOLDER");
  char path[512];
  snprintf(path, sizeof path, "%s/x.npy", folder != NULL ? folder : ".");
  OK(tessera_array_save(x, path));
  tessera_array* loaded = NULL;
  OK(tessera_array_load(path, NULL, &loaded));
  CHECK(take(loaded)[3] == 7);
  remove(path);
  FAILS(tessera_array_load(path, NULL, &loaded), TESSERA_ARGUMENT_ERROR, "x.npy");
  FAILS(tessera_array_load("/", NULL, &loaded), TESSERA_ARGUMENT_ERROR, "path = /");

  /* Bools are bytes. */
  const unsigned char flags[] = {0, 1, 255};
  tessera_array* mask = NULL;
  OK(tessera_array_create(flags, TESSERA_BOOL, (int64_t[]){3}, 1, NULL, &mask));
  tessera_array* picked = NULL;
  count = 1;
  OK(tessera_apply("where", (const tessera_array*[]){mask, two, x}, 3, NULL, 0, &picked, &count));
  const float* chosen = take(picked);
  CHECK(chosen[0] == 1 && chosen[1] == 2 && chosen[2] == 2);
  CHECK(tessera_dtype_size(TESSERA_BF16) == 2 && strcmp(tessera_dtype_name(TESSERA_BF16), "bf16") == 0);
  CHECK(tessera_dtype_size((tessera_dtype)40) == 0 && tessera_dtype_name((tessera_dtype)-1)[0] == 0);

  tessera_array_free(mask);
  tessera_array_free(y);
  tessera_array_free(two);
  tessera_array_free(x);
  tessera_array_free(NULL);
}

/* Returns the real (0) or imaginary (1) parts of an array of pairs. */
static tessera_array* part_of(const tessera_array* pairs, int64_t which) {
  const tessera_index at[] = {{.kind = TESSERA_ELLIPSIS}, {.kind = TESSERA_AT, .begin = which}};
  tessera_array* out = NULL;
  OK(tessera_array_index(pairs, at, 2, &out));
  return out;
}
/* Calls an operation with complex numbers, of which `imag` can be NULL. Frees the operands. */
static size_t transform(const char* name, tessera_array* real, tessera_array* imag, const tessera_attribute* attributes,
                        size_t count, tessera_array* results[2]) {
  size_t found = 2;
  OK(tessera_apply(name, (const tessera_array*[]){real, imag}, imag != NULL ? 2 : 1, attributes, count, results,
                   &found));
  tessera_array_free(real);
  tessera_array_free(imag);
  return found;
}
static bool near(const float* got, const float* wanted, size_t count) {
  for (size_t i = 0; i < count; ++i)
    if (!(fabsf(got[i] - wanted[i]) < 1e-5f)) return false;
  return true;
}

static void transforms(void) {
  const float pairs[] = {1, 2, 3, -1, 0, 5, -2, 4}; /* 1+2i, 3-i, 5i, -2+4i */
  const float real[] = {1, 2, 3, 4};
  tessera_array* z[2] = {NULL, NULL};
  tessera_array* x = floats(pairs, 4, 2);
  CHECK(transform("fft", part_of(x, 0), part_of(x, 1), NULL, 0, z) == 2);
  tessera_array* copies[2];
  for (int i = 0; i < 2; ++i) OK(tessera_array_share(z[i], &copies[i]));
  CHECK(near(take(copies[0]), (const float[]){2, -4, 0, 6}, 4));
  CHECK(near(take(copies[1]), (const float[]){10, -8, 4, 2}, 4));
  CHECK(transform("ifft", z[0], z[1], NULL, 0, z) == 2);
  CHECK(near(take(z[0]), (const float[]){1, 3, 0, -2}, 4));
  CHECK(near(take(z[1]), (const float[]){2, -1, 5, 4}, 4));

  const tessera_attribute ortho[] = {{.name = "norm", .kind = TESSERA_TEXT, .text = "ortho"},
                                     {.name = "n", .kind = TESSERA_INTEGER, .integer = 4}};
  CHECK(transform("rfft", floats(real, 1, 4), NULL, ortho, 2, z) == 2);
  for (int i = 0; i < 2; ++i) OK(tessera_array_share(z[i], &copies[i]));
  CHECK(near(take(copies[0]), (const float[]){5, -1, -1}, 3));
  CHECK(near(take(copies[1]), (const float[]){0, 1, 0}, 3));
  CHECK(transform("irfft", z[0], z[1], ortho, 2, z) == 1);
  CHECK(near(take(z[0]), real, 4));
  CHECK(transform("fftn", floats(real, 2, 2), NULL, NULL, 0, z) == 2);
  CHECK(near(take(z[0]), (const float[]){10, -2, -4, 0}, 4));
  tessera_array_free(z[1]);
  const tessera_attribute frequencies[] = {{.name = "n", .kind = TESSERA_INTEGER, .integer = 4},
                                           {.name = "spacing", .kind = TESSERA_NUMBER, .number = 0.5}};
  CHECK(near(take(apply("fftfreq", NULL, NULL, frequencies, 2)), (const float[]){0, 0.5f, -1, -0.5f}, 4));

  size_t count = 2;
  FAILS(tessera_apply("fft", (const tessera_array*[]){x}, 1, frequencies, 2, z, &count), TESSERA_ARGUMENT_ERROR,
        "spacing");
  const tessera_attribute axis = {.name = "axis", .kind = TESSERA_INTEGER, .integer = 2};
  FAILS(tessera_apply("rfft", (const tessera_array*[]){x}, 1, &axis, 1, z, &count), TESSERA_SHAPE_ERROR, "axis");
  const tessera_attribute norm = {.name = "norm", .kind = TESSERA_TEXT, .text = "max"};
  FAILS(tessera_apply("irfft", (const tessera_array*[]){x}, 1, &norm, 1, z, &count), TESSERA_ARGUMENT_ERROR,
        "backward, ortho, forward");
  tessera_array* half = part_of(x, 0);
  FAILS(tessera_apply("fft", (const tessera_array*[]){x, half}, 2, NULL, 0, z, &count), TESSERA_SHAPE_ERROR, "imag");
  tessera_array_free(half);
  tessera_array_free(x);
}

static void transforms_on_every_device(void) {
  tessera_device all[16];
  size_t count = 0;
  OK(tessera_get_devices(all, 16, &count));
  for (size_t i = 0; i < count && i < 16; ++i) {
    tessera_device_info info = {.size = sizeof info};
    OK(tessera_get_device_info(all[i], &info));
    if (info.state != TESSERA_VERIFIED) continue;
    OK(tessera_set_current_device(&all[i]));
    transforms();
  }
  OK(tessera_set_current_device(NULL));
}

/* The beginning of DLPack's structures (dlpack.h). */
struct DLManagedTensorVersioned {
  uint32_t major, minor;
  void* context;
  void (*deleter)(struct DLManagedTensorVersioned*);
  uint64_t flags;
  void* data;
  int32_t device_type, device_id, ndim;
  uint8_t code, bits;
  uint16_t lanes;
  int64_t *shape, *strides;
  uint64_t byte_offset;
};
static int deleted = 0;
static void delete_tensor(struct DLManagedTensorVersioned* tensor) {
  (void)tensor;
  ++deleted;
}
static void dlpack(void) {
  const float values[] = {1, 2, 3, 4};
  tessera_array* x = floats(values, 2, 2);
  struct DLManagedTensorVersioned* tensor = NULL;
  OK(tessera_array_to_dlpack(x, &tensor));
  CHECK(tensor->major == 1 && tensor->ndim == 2 && tensor->code == 2 && tensor->bits == 32 && tensor->device_type == 1);
  ((float*)tensor->data)[3] = 40;
  tensor->deleter(tensor);
  CHECK(take(x)[3] == 40);

  float data[] = {5, 6, 7};
  int64_t shape[] = {3};
  struct DLManagedTensorVersioned given = {.major = 1, .deleter = delete_tensor, .data = data, .device_type = 1,
                                           .ndim = 1, .code = 2, .bits = 32, .lanes = 1, .shape = shape};
  OK(tessera_array_from_dlpack(&given, false, &x));
  data[0] = 50;
  CHECK(take(x)[0] == 50);
  OK(tessera_synchronize());
  CHECK(deleted == 1);
  given.bits = 31;
  FAILS(tessera_array_from_dlpack(&given, false, &x), TESSERA_DTYPE_ERROR, "31");
  CHECK(deleted == 1 && x == NULL);
  struct DLManagedTensor* old = NULL;
  x = floats(values, 2, 2);
  OK(tessera_array_to_dlpack_unversioned(x, &old));
  tessera_array* back = NULL;
  OK(tessera_array_from_dlpack_unversioned(old, true, &back));
  CHECK(take(back)[2] == 3);
  tessera_array_free(x);
}

static void kernels(void) {
  const char* text =
      "kernel scale map\n"
      "  buffer x: f32 read\n"
      "  buffer y: f32 read_write\n"
      "  scalar a: f32\n"
      "  scalar n: index\n"
      "  %x: f32 = load x[global_id(0)]\n"
      "  %n: f32 = cast n\n"
      "  %p: f32 = mul a, %x\n"
      "  %s: f32 = add %p, %n\n"
      "  store y[global_id(0)], %s\n";
  tessera_kernel* kernel = NULL;
  OK(tessera_kernel_parse(text, &kernel));
  const float values[] = {1, 2, 3, 4};
  tessera_array *x = floats(values, 2, 2), *y = floats(values, 2, 2), *a = NULL, *n = NULL;
  OK(tessera_array_number(10, &a));
  OK(tessera_array_integer(3, &n));
  const tessera_array* arguments[] = {x, y, a, n};
  const uint64_t threads[3] = {4, 1, 1};
  OK(tessera_kernel_prepare(kernel, (tessera_device){TESSERA_CPU, 0}));
  OK(tessera_kernel_launch(kernel, threads, arguments, 4));
  char* printed = NULL;
  OK(tessera_kernel_text(kernel, &printed));
  CHECK(strstr(printed, "kernel scale map") == printed);
  tessera_kernel* again = NULL;
  OK(tessera_kernel_parse(printed, &again));
  tessera_string_free(printed);
  tessera_kernel_free(again);
  OK(tessera_kernel_source(kernel, (tessera_device){TESSERA_CPU, 0}, &printed));
  CHECK(printed[0] != 0);
  tessera_string_free(printed);

  FAILS(tessera_kernel_launch(kernel, threads, arguments, 3), TESSERA_KERNEL_ERROR, "arguments");
  FAILS(tessera_kernel_launch(kernel, NULL, arguments, 4), TESSERA_ARGUMENT_ERROR, "'shape' is NULL");
  const uint64_t flat[3] = {4};
  FAILS(tessera_kernel_launch(kernel, flat, arguments, 4), TESSERA_ARGUMENT_ERROR, "third dimension have the size 0");
  const tessera_array* swapped[] = {x, y, y, n};
  FAILS(tessera_kernel_launch(kernel, threads, swapped, 4), TESSERA_KERNEL_ERROR, "the parameter is a scalar");
  swapped[1] = a, swapped[2] = a;
  FAILS(tessera_kernel_launch(kernel, threads, swapped, 4), TESSERA_KERNEL_ERROR, "the parameter is a buffer");
  const tessera_array* fraction[] = {x, y, a, a};
  FAILS(tessera_kernel_launch(kernel, threads, fraction, 4), TESSERA_DTYPE_ERROR, "converted to index");
  FAILS(tessera_kernel_parse("kernel k map\n  store y[0], 1", &again), TESSERA_KERNEL_ERROR, "line 2");
  CHECK(take(y)[3] == 43);
  tessera_array_free(x);
  tessera_array_free(a);
  tessera_array_free(n);
  tessera_kernel_free(kernel);
}

struct collected {
  char text[4096];
  size_t length, pieces, most;
};
static bool collect(void* user, const char* piece, size_t length) {
  struct collected* c = user;
  if (c->length + length < sizeof c->text) memcpy(c->text + c->length, piece, length + 1), c->length += length;
  return ++c->pieces < c->most;
}
static void progress(void* user, uint64_t done, uint64_t total) {
  if (done <= total) ++*(int*)user;
}

static void models(const char* path) {
  tessera_model* model = NULL;
  FAILS(tessera_model_load("/nowhere.gguf", NULL, &model), TESSERA_ARGUMENT_ERROR, "/nowhere.gguf");
  int reports = 0;
  tessera_load_options load;
  tessera_init_load_options(&load, sizeof load);
  const tessera_device cpu = {TESSERA_CPU, 0};
  load.devices = &cpu, load.device_count = 1, load.progress = progress, load.user = &reports;
  OK(tessera_model_load(path, &load, &model));
  if (model == NULL) return;
  CHECK(reports > 0);
  tessera_model_info info = {.size = sizeof info};
  OK(tessera_get_model_info(model, &info));
  CHECK(strcmp(info.architecture, "llama") == 0 && info.context_length > 0 && info.vocabulary > 100);

  int32_t ids[16];
  size_t count = 0;
  OK(tessera_model_tokenize(model, "The index", ids, 16, &count));
  CHECK(count > 0 && count <= 16);
  char* text = NULL;
  OK(tessera_model_detokenize(model, ids, count, &text));
  CHECK(strstr(text, "The index") != NULL);
  tessera_string_free(text);

  tessera_generate_options options;
  tessera_init_generate_options(&options, sizeof options);
  CHECK(options.max_tokens == 256 && options.top_k == 40);
  options.temperature = 0;
  options.max_tokens = 12;
  struct collected whole = {.most = 1000};
  tessera_generation* generation = NULL;
  OK(tessera_model_generate(model, "The index", &options, collect, &whole, &generation));
  tessera_generation_info got = {.size = sizeof got};
  OK(tessera_get_generation_info(generation, &got));
  CHECK(strcmp(got.text, whole.text) == 0 && got.token_count == 12 && got.stop_reason == TESSERA_STOP_MAX_TOKENS);
  CHECK(got.prompt_tokens == count);
  tessera_generation* second = NULL;
  struct collected some = {.most = 2};
  OK(tessera_model_generate(model, "The index", &options, collect, &some, &second));
  tessera_generation_info stopped = {.size = sizeof stopped};
  OK(tessera_get_generation_info(second, &stopped));
  CHECK(stopped.stop_reason == TESSERA_STOP_CANCELLED && strncmp(some.text, whole.text, some.length) == 0);
  tessera_generation_free(second);
  tessera_generation_free(generation);
  options.json_schema = "{\"type\": \"boolean\"}";
  OK(tessera_model_generate(model, "The index", &options, NULL, NULL, &generation));
  OK(tessera_get_generation_info(generation, &got));
  CHECK(strcmp(got.text, "true") == 0 || strcmp(got.text, "false") == 0);
  tessera_generation_free(generation);
  options.json_schema = "{";
  FAILS(tessera_model_generate(model, "x", &options, NULL, NULL, NULL), TESSERA_FORMAT_ERROR, "schema");
  options.json_schema = NULL;
  options.top_p = 2;
  FAILS(tessera_model_generate(model, "x", &options, NULL, NULL, NULL), TESSERA_ARGUMENT_ERROR, "top_p");
  options.top_p = 1;

  tessera_chat* chat = NULL;
  FAILS(tessera_chat_create(model, NULL, &chat), TESSERA_FORMAT_ERROR, "template");
  tessera_chat_options how;
  tessera_init_chat_options(&how, sizeof how);
  how.chat_template = "chatml";
  how.generate = &options;
  OK(tessera_chat_create(model, &how, &chat));
  tessera_model_free(model);  /* the chat still uses it */
  OK(tessera_chat_add(chat, "user", "What is a table?"));
  struct collected answer = {.most = 1000};
  OK(tessera_chat_answer(chat, collect, &answer, &generation));
  OK(tessera_get_generation_info(generation, &got));
  CHECK(strcmp(got.text, answer.text) == 0 && strstr(got.message, "\"assistant\"") != NULL);
  tessera_generation_free(generation);
  OK(tessera_chat_json(chat, &text));
  CHECK(strstr(text, "What is a table?") != NULL);
  OK(tessera_chat_set_json(chat, text));
  tessera_string_free(text);
  FAILS(tessera_chat_set_json(chat, "[{]"), TESSERA_FORMAT_ERROR, "the conversation");
  tessera_chat_free(chat);
}

int main(int count, char** arguments) {
  devices();
  arrays();
  transforms_on_every_device();
  dlpack();
  kernels();
  if (count > 1) models(arguments[1]);
  if (failures == 0) printf("all checks passed\n");
  return failures != 0;
}
