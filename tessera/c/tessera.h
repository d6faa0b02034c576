/* SPDX-License-Identifier: Apache-2.0 */
/* Tessera for C, and for languages that call C: devices, arrays, kernels and language models. docs/c.md has examples.
 *
 * Most functions return a status. If it is not TESSERA_OK, tessera_last_error() has the message, and results are not
 * written, except that handles are set to NULL. Pointers must not be NULL unless documented otherwise; a NULL pointer
 * is reported as TESSERA_ARGUMENT_ERROR. Functions can be called from several threads, but a handle that one thread
 * changes must not be used by another thread at the same time. Strings are UTF-8. */
#ifndef TESSERA_C_TESSERA_H
#define TESSERA_C_TESSERA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/// The version of this interface. Functions and enumerators are only added, and structures only grow at the end, while
/// it stays the same. A structure begins with its size, so that a program works with a library that knows more fields.
#define TESSERA_ABI_VERSION 1

/// The version of the interface that the library implements. Compare it with TESSERA_ABI_VERSION.
uint32_t tessera_abi_version(void);
/// The version of the library, such as "0.1.0".
const char* tessera_version(void);

/// The kinds of errors.
typedef enum tessera_status {
  TESSERA_OK = 0,              ///< no error
  TESSERA_ERROR = 1,           ///< an error of no other kind
  TESSERA_DEVICE_ERROR = 2,    ///< a device is missing or unusable
  TESSERA_DEVICE_LOST = 3,     ///< a device failed and cannot recover; its memory is lost
  TESSERA_SHAPE_ERROR = 4,     ///< the shapes do not match the operation
  TESSERA_DTYPE_ERROR = 5,     ///< the operation does not support the dtype
  TESSERA_OUT_OF_MEMORY = 6,   ///< memory is exhausted; the process can continue
  TESSERA_KERNEL_ERROR = 7,    ///< a kernel is invalid, or failed to compile or to run
  TESSERA_FORMAT_ERROR = 8,    ///< a file violates its format
  TESSERA_ARGUMENT_ERROR = 9,  ///< another argument is invalid
} tessera_status;

/// The message of the last error on this thread, or "". Valid until the next function of this thread fails.
const char* tessera_last_error(void);
/// The name of a status, such as "shape error".
const char* tessera_status_name(tessera_status status);
/// Frees a string that was returned through a `char**`. NULL is ignored.
void tessera_string_free(char* text);

/* Devices. */

/// The API through which a device is used.
typedef enum tessera_backend {
  TESSERA_CPU = 0,     ///< the CPU
  TESSERA_CUDA = 1,    ///< NVIDIA GPUs
  TESSERA_ROCM = 2,    ///< AMD GPUs
  TESSERA_ONEAPI = 3,  ///< Intel GPUs
  TESSERA_METAL = 4,   ///< Apple GPUs
  TESSERA_OPENCL = 5,  ///< devices of OpenCL drivers
  TESSERA_INTERP = 6,  ///< the reference interpreter
} tessera_backend;

/// A device: a backend and an index from 0.
typedef struct tessera_device {
  int32_t backend;  ///< a tessera_backend
  int32_t index;    ///< index among the devices of the backend
} tessera_device;

/// The state of a device or backend.
typedef enum tessera_device_state {
  TESSERA_UNSUPPORTED = 0,  ///< Tessera has no code for it on this system
  TESSERA_SUPPORTED = 1,    ///< not loaded: the library was not found or could not be loaded
  TESSERA_LOADED = 2,       ///< the library was loaded, but there is no usable device
  TESSERA_ENUMERATED = 3,   ///< the driver listed the device
  TESSERA_VERIFIED = 4,     ///< a small test kernel gave the correct result
  TESSERA_QUARANTINED = 5,  ///< a small test kernel gave a wrong result
  TESSERA_CRASHED = 6,      ///< the driver crashed the helper process
  TESSERA_HUNG = 7,         ///< the helper process did not answer in time
  TESSERA_LOST = 8,         ///< the device reported an unrecoverable error
} tessera_device_state;

/// Properties of a device. Set `size` to sizeof(tessera_device_info) first. The strings stay valid while the process
/// runs.
typedef struct tessera_device_info {
  size_t size;                 ///< size of this structure in bytes
  const char* text;            ///< the device as text, such as "cuda:0"
  const char* name;            ///< the driver's name of the device
  const char* vendor;          ///< the vendor
  const char* driver_version;  ///< the version of the driver
  int32_t state;               ///< a tessera_device_state
  int32_t native_index;        ///< the index in the vendor's API and in DLPack
  const char* reason;          ///< why the device is not TESSERA_VERIFIED, or ""
  const char* remedy;          ///< what to do, or ""
  uint64_t total_memory;       ///< memory in bytes
  uint32_t compute_units;      ///< cores or compute units; 0 if unknown
  bool unified_memory;         ///< true if the device shares the host's memory
} tessera_device_info;

/// Why a backend can or cannot be used. Set `size` to sizeof(tessera_backend_report) first. The strings stay valid
/// while the process runs.
typedef struct tessera_backend_report {
  size_t size;          ///< size of this structure in bytes
  const char* name;     ///< the backend's name, such as "cuda"
  int32_t state;        ///< a tessera_device_state: that of the best device, or how far loading the driver got
  const char* file;     ///< the library that was tried last, or ""
  const char* reason;   ///< the error message of the loader or driver, or ""
  const char* remedy;   ///< what to do, or ""
  size_t device_count;  ///< number of devices
} tessera_backend_report;

/// Parses "cuda:1", or "cuda" as "cuda:0". Returns TESSERA_DEVICE_ERROR for other text.
tessera_status tessera_parse_device(const char* text, tessera_device* device);
/// Writes the first `capacity` devices of all backends to `devices`, and their number to `count`. `devices` may be NULL
/// if `capacity` is 0.
tessera_status tessera_get_devices(tessera_device* devices, size_t capacity, size_t* count);
/// Returns the properties of a device. Returns TESSERA_DEVICE_ERROR if it does not exist; the message has the reason.
tessera_status tessera_get_device_info(tessera_device device, tessera_device_info* info);
/// Returns why a backend can or cannot be used.
tessera_status tessera_get_backend_report(tessera_backend backend, tessera_backend_report* report);
/// Returns the device for new arrays: that of tessera_set_current_device(), else TESSERA_DEVICE, else a preference,
/// else an automatically selected device.
tessera_status tessera_get_current_device(tessera_device* device);
/// Sets the current device of this thread. NULL selects automatically again. Returns TESSERA_DEVICE_ERROR if the device
/// does not exist.
tessera_status tessera_set_current_device(const tessera_device* device);
/// Returns a sentence with the current device, the rule that selected it, and the reason for each GPU backend that is
/// not used. Free it with tessera_string_free().
tessera_status tessera_why_current_device(char** text);
/// Returns the free memory of a device in bytes.
tessera_status tessera_free_memory(tessera_device device, uint64_t* bytes);
/// Discards the cached results of device discovery; the next function that needs devices searches again.
tessera_status tessera_rescan(void);
/// Waits until all work on all devices is complete, and returns the first error that was not returned before.
tessera_status tessera_synchronize(void);

/* Arrays. */

/// Element types. TESSERA_BOOL elements are bytes, 0 or 1.
typedef enum tessera_dtype {
  TESSERA_BOOL = 0,   ///< false or true
  TESSERA_I8 = 1,     ///< signed, 8 bits
  TESSERA_U8 = 2,     ///< unsigned, 8 bits
  TESSERA_I16 = 3,    ///< signed, 16 bits
  TESSERA_U16 = 4,    ///< unsigned, 16 bits
  TESSERA_I32 = 5,    ///< signed, 32 bits
  TESSERA_U32 = 6,    ///< unsigned, 32 bits
  TESSERA_I64 = 7,    ///< signed, 64 bits
  TESSERA_U64 = 8,    ///< unsigned, 64 bits
  TESSERA_F16 = 9,    ///< IEEE half precision
  TESSERA_BF16 = 10,  ///< bfloat16
  TESSERA_F32 = 11,   ///< single precision
  TESSERA_F64 = 12,   ///< double precision
} tessera_dtype;

/// Bytes per element; 0 for a value that is not a tessera_dtype.
size_t tessera_dtype_size(tessera_dtype dtype);
/// The name of a dtype, such as "f32"; "" for a value that is not a tessera_dtype.
const char* tessera_dtype_name(tessera_dtype dtype);

/// A handle of an array, or a number that takes the dtype of the other operand. Several handles can refer to the same
/// memory.
typedef struct tessera_array tessera_array;

/// Properties of an array. Set `size` to sizeof(tessera_array_info) first. The pointers are valid while the handle
/// exists.
typedef struct tessera_array_info {
  size_t size;             ///< size of this structure in bytes
  int32_t dtype;           ///< a tessera_dtype
  int32_t rank;            ///< number of dimensions
  const int64_t* shape;    ///< the extents, `rank` of them
  const int64_t* strides;  ///< distances between neighbours in elements, `rank` of them
  int64_t elements;        ///< number of elements
  uint64_t bytes;          ///< size of the elements in bytes, without gaps
  tessera_device device;   ///< the device that has the memory
  bool contiguous;         ///< true if the elements are in row-major order without gaps
  bool pending;            ///< true if the elements have not been computed yet
} tessera_array_info;

/// Creates an array with a copy of the elements at `data`, in row-major order, or without defined contents if `data` is
/// NULL. `shape` has `rank` extents and may be NULL if `rank` is 0. `device` may be NULL: the current device.
tessera_status tessera_array_create(const void* data, tessera_dtype dtype, const int64_t* shape, size_t rank,
                                    const tessera_device* device, tessera_array** array);
/// Creates a floating-point number for tessera_apply() and tessera_kernel_launch(). It takes the dtype of the other
/// operand, if that is a float, and is f32 otherwise.
tessera_status tessera_array_number(double value, tessera_array** array);
/// Creates an integer for tessera_apply() and tessera_kernel_launch(). It takes the dtype of the other operand, if that
/// is not bool.
tessera_status tessera_array_integer(int64_t value, tessera_array** array);
/// Creates another handle of the same array.
tessera_status tessera_array_share(const tessera_array* from, tessera_array** array);
/// Frees a handle. The memory is freed with the last handle that uses it. NULL is ignored.
void tessera_array_free(tessera_array* array);
/// Returns the properties of an array.
tessera_status tessera_get_array_info(const tessera_array* array, tessera_array_info* info);
/// Copies the elements in row-major order to host memory. Waits until they are computed. `bytes` must be the size of
/// the elements.
tessera_status tessera_array_read(const tessera_array* array, void* to, size_t bytes);
/// Overwrites the elements with a copy of host memory in row-major order. `bytes` must be the size of the elements.
tessera_status tessera_array_write(tessera_array* array, const void* from, size_t bytes);
/// Writes `value`, broadcast and converted, into the memory of `array`. Fails with TESSERA_DTYPE_ERROR if it is a
/// number outside of the range of an integer dtype.
tessera_status tessera_array_assign(tessera_array* array, const tessera_array* value);
/// Starts the computation of pending arrays. Arrays of the same shape share a kernel.
tessera_status tessera_array_eval(const tessera_array* const* arrays, size_t count);
/// Returns a copy on `device`, or another handle of the same array if it is already there.
tessera_status tessera_array_to(const tessera_array* from, tessera_device device, tessera_array** array);
/// Returns the elements as text, in NumPy's layout. Free it with tessera_string_free().
tessera_status tessera_array_text(const tessera_array* array, char** text);
/// Writes a NumPy .npy file.
tessera_status tessera_array_save(const tessera_array* array, const char* path);
/// Reads a NumPy .npy file. `device` may be NULL: the current device.
tessera_status tessera_array_load(const char* path, const tessera_device* device, tessera_array** array);

/// Kinds of indices.
typedef enum tessera_index_kind {
  TESSERA_AT = 0,        ///< one element, `begin`; removes the axis. A negative number counts from the end
  TESSERA_SLICE = 1,     ///< elements `begin`, `begin + step`, ... up to but excluding `end`, as in NumPy
  TESSERA_NEW_AXIS = 2,  ///< a new axis of extent 1
  TESSERA_ELLIPSIS = 3,  ///< all axes that have no other index
} tessera_index_kind;
/// The value of `begin` or `end` that stands for an omitted bound of a slice.
#define TESSERA_OPEN INT64_MIN
/// One index of tessera_array_index().
typedef struct tessera_index {
  int32_t kind;        ///< a tessera_index_kind
  int32_t reserved;    ///< 0
  int64_t begin, end;  ///< position, or bounds of a slice
  int64_t step;        ///< distance of the elements of a slice, not 0
} tessera_index;
/// Indexes an array, `a[2, 1:5, ...]` in NumPy. Returns a view, except that slices with a negative step are copies.
tessera_status tessera_array_index(const tessera_array* from, const tessera_index* indices, size_t count,
                                   tessera_array** array);

/// Kinds of attributes.
typedef enum tessera_attribute_kind {
  TESSERA_INTEGER = 0,  ///< `integer`; also for flags, 0 or 1
  TESSERA_NUMBER = 1,   ///< `number`
  TESSERA_LIST = 2,     ///< `list` of `count` integers
  TESSERA_TEXT = 3,     ///< `text`; also for dtypes ("f32") and devices ("cuda:0")
} tessera_attribute_kind;
/// An argument of an operation that is not an array, such as "axes" of "sum". Only the fields of its kind are read.
typedef struct tessera_attribute {
  const char* name;     ///< the name
  int32_t kind;         ///< a tessera_attribute_kind
  int32_t reserved;     ///< 0
  int64_t integer;      ///< of TESSERA_INTEGER
  double number;        ///< of TESSERA_NUMBER
  const int64_t* list;  ///< of TESSERA_LIST
  size_t count;         ///< number of elements of `list`
  const char* text;     ///< of TESSERA_TEXT
} tessera_attribute;

/// Calls an operation. docs/c.md lists the operations with their operands, attributes and results. Writes `*count`
/// handles to `results`, and sets `*count`. On entry, `*count` is the number of handles that fit; if there are more
/// results, returns TESSERA_ARGUMENT_ERROR. `operands` and `attributes` may be NULL if there are none.
tessera_status tessera_apply(const char* name, const tessera_array* const* operands, size_t operand_count,
                             const tessera_attribute* attributes, size_t attribute_count, tessera_array** results,
                             size_t* count);
/// The number of operations.
size_t tessera_operation_count(void);
/// The name, operands and attributes of operation `i`, such as "sum(a; axes, keep)". NULL if there is no operation `i`.
const char* tessera_operation(size_t i);

/// DLPack's DLManagedTensorVersioned, which dlpack.h declares.
struct DLManagedTensorVersioned;
/// DLPack's DLManagedTensor, which dlpack.h declares.
struct DLManagedTensor;
/// Exports the memory of an array without a copy. Waits until the array is computed. The consumer calls the tensor's
/// deleter.
tessera_status tessera_array_to_dlpack(const tessera_array* array, struct DLManagedTensorVersioned** tensor);
/// Like tessera_array_to_dlpack(), in the older form without a version.
tessera_status tessera_array_to_dlpack_unversioned(const tessera_array* array, struct DLManagedTensor** tensor);
/// Imports a tensor whose contents are complete, without a copy, or with one if `copy` is set. The deleter of the
/// tensor is called when the last array that uses it is freed. If the import fails, the caller keeps the tensor.
tessera_status tessera_array_from_dlpack(struct DLManagedTensorVersioned* tensor, bool copy, tessera_array** array);
/// Like tessera_array_from_dlpack(), for the older form without a version.
tessera_status tessera_array_from_dlpack_unversioned(struct DLManagedTensor* tensor, bool copy, tessera_array** array);

/* Kernels. */

/// A handle of a kernel.
typedef struct tessera_kernel tessera_kernel;

/// Creates a kernel from its text (docs/c.md, "Write a kernel"). Returns TESSERA_KERNEL_ERROR with the line if the text
/// is invalid.
tessera_status tessera_kernel_parse(const char* text, tessera_kernel** kernel);
/// Frees a kernel. Launches that are in progress complete. NULL is ignored.
void tessera_kernel_free(tessera_kernel* kernel);
/// Returns the kernel as text after folding and numbering. Free it with tessera_string_free().
tessera_status tessera_kernel_text(const tessera_kernel* kernel, char** text);
/// Returns the source code that the device's compiler reads. Free it with tessera_string_free().
tessera_status tessera_kernel_source(const tessera_kernel* kernel, tessera_device device, char** text);
/// Compiles the kernel now, so that a later launch does not wait for the compiler.
tessera_status tessera_kernel_prepare(const tessera_kernel* kernel, tessera_device device);
/// Enqueues a kernel on the device of its arrays. `shape` is the number of threads in each dimension for `map` kernels,
/// and the number of blocks for `block` kernels, and 1 for dimensions that the kernel does not have. Indices are not
/// checked: accesses outside of an array are undefined, unless the device is `interp` and TESSERA_CHECK=1 is set in the
/// environment. The arguments are in the order of the parameters: contiguous arrays
/// for buffers, and numbers (tessera_array_number(), tessera_array_integer()) for scalars.
tessera_status tessera_kernel_launch(const tessera_kernel* kernel, const uint64_t shape[3],
                                     const tessera_array* const* arguments, size_t count);

/* Language models. */

/// A handle of a language model: weights on a device, and the tokenizer.
typedef struct tessera_model tessera_model;

/// Options of tessera_model_load(). tessera_init_load_options() sets the defaults.
typedef struct tessera_load_options {
  size_t size;                    ///< size of this structure in bytes
  const tessera_device* devices;  ///< the devices to use, or NULL: the current device
  size_t device_count;            ///< number of devices
  /// Called while the file is read, with the bytes read so far and in total. May be NULL.
  void (*progress)(void* user, uint64_t done, uint64_t total);
  void* user;  ///< passed to `progress`
} tessera_load_options;
/// Sets the defaults. `size` is sizeof(tessera_load_options).
void tessera_init_load_options(tessera_load_options* options, size_t size);

/// Loads a GGUF file or a model folder of the Hugging Face hub. `options` may be NULL.
tessera_status tessera_model_load(const char* path, const tessera_load_options* options, tessera_model** model);
/// Frees a model, unless a chat still uses it. NULL is ignored.
void tessera_model_free(tessera_model* model);

/// Properties of a model. Set `size` to sizeof(tessera_model_info) first. The strings are valid while the model exists.
typedef struct tessera_model_info {
  size_t size;               ///< size of this structure in bytes
  const char* architecture;  ///< such as "llama"
  int64_t context_length;    ///< the longest text in tokens
  int64_t vocabulary;        ///< number of tokens
  tessera_device device;     ///< the device of the model, or the first of several
  double load_seconds;       ///< the time that loading took
} tessera_model_info;
/// Returns the properties of a model.
tessera_status tessera_get_model_info(const tessera_model* model, tessera_model_info* info);
/// Writes the first `capacity` tokens of a text to `tokens`, and their number to `count`. `tokens` may be NULL if
/// `capacity` is 0. The begin and end tokens that the model requires are added; control tokens in the text are not
/// recognised.
tessera_status tessera_model_tokenize(const tessera_model* model, const char* text, int32_t* tokens, size_t capacity,
                                      size_t* count);
/// Returns the text of tokens. Free it with tessera_string_free().
tessera_status tessera_model_detokenize(const tessera_model* model, const int32_t* tokens, size_t count, char** text);

/// Called with each piece of generated text, in whole UTF-8 characters. The piece ends with a zero byte that `length`
/// does not count. Return false to stop.
typedef bool (*tessera_text_callback)(void* user, const char* piece, size_t length);

/// Options of tessera_model_generate() and tessera_chat_create(). tessera_init_generate_options() sets the defaults.
typedef struct tessera_generate_options {
  size_t size;              ///< size of this structure in bytes
  double temperature;       ///< divisor of the logits; 0: always choose the likeliest token. Default: 0.8
  int64_t top_k;            ///< keep the k likeliest tokens; 0: all. Default: 40
  double top_p;             ///< keep the likeliest tokens with this probability in total. Default: 0.95
  double min_p;             ///< keep tokens with this fraction of the largest probability. Default: 0
  double repeat_penalty;    ///< divides positive logits of previous tokens. Default: 1
  uint64_t seed;            ///< the random seed. Default: 0
  int64_t max_tokens;       ///< maximum number of tokens to generate. Default: 256
  int64_t context;          ///< length of prompt and answer in tokens; 0: that of the model. For chats, see there
  const char* const* stop;  ///< texts that end the answer, or NULL
  size_t stop_count;        ///< number of texts
  const char* json_schema;  ///< the answer is JSON that matches this schema ("{}": any JSON), or NULL
} tessera_generate_options;
/// Sets the defaults. `size` is sizeof(tessera_generate_options).
void tessera_init_generate_options(tessera_generate_options* options, size_t size);

/// Why generation stopped.
typedef enum tessera_stop_reason {
  TESSERA_STOP_END_TOKEN = 0,     ///< the model ended the text
  TESSERA_STOP_MAX_TOKENS = 1,    ///< the maximum number of tokens was reached
  TESSERA_STOP_CONTEXT_FULL = 2,  ///< the context is full
  TESSERA_STOP_CANCELLED = 3,     ///< the callback returned false
  TESSERA_STOP_TEXT = 4,          ///< a stop text occurred
} tessera_stop_reason;

/// A handle of a generated text and its statistics.
typedef struct tessera_generation tessera_generation;
/// A generated text. Set `size` to sizeof(tessera_generation_info) first. The pointers are valid while the handle
/// exists.
typedef struct tessera_generation_info {
  size_t size;              ///< size of this structure in bytes
  const char* text;         ///< the answer
  const char* thinking;     ///< of a chat: the text between thinking marks, or ""
  const char* message;      ///< of a chat: the answer, with tool calls, as JSON in the format of OpenAI's API, or ""
  const int32_t* tokens;    ///< the generated tokens
  size_t token_count;       ///< number of generated tokens
  size_t prompt_tokens;     ///< number of tokens of the prompt
  int32_t stop_reason;      ///< a tessera_stop_reason
  double prompt_seconds;    ///< the time for reading the prompt
  double generate_seconds;  ///< the time for generating
} tessera_generation_info;
/// Returns a generated text.
tessera_status tessera_get_generation_info(const tessera_generation* generation, tessera_generation_info* info);
/// Frees a generated text. NULL is ignored.
void tessera_generation_free(tessera_generation* generation);

/// Continues `prompt`. `options`, `on_text` and `generation` may be NULL. `user` is passed to `on_text`.
tessera_status tessera_model_generate(const tessera_model* model, const char* prompt,
                                      const tessera_generate_options* options, tessera_text_callback on_text,
                                      void* user, tessera_generation** generation);

/// A handle of a conversation with a model.
typedef struct tessera_chat tessera_chat;
/// Options of tessera_chat_create(). tessera_init_chat_options() sets the defaults.
typedef struct tessera_chat_options {
  size_t size;                               ///< size of this structure in bytes
  const tessera_generate_options* generate;  ///< NULL: the sampling options of the file. If `context` in it is 0, the
                                             ///< context is that of the model, but at most 8,192 tokens
  const char* chat_template;                 ///< a built-in template, such as "chatml"; NULL: that of the file
  const char* template_arguments;            ///< a JSON object with variables for the template, or NULL
  const char* tools;                         ///< tools in JSON, in the format of OpenAI's API, or NULL
  bool shift;  ///< if the context is full, drop the oldest messages; otherwise the answer ends. Default: false
} tessera_chat_options;
/// Sets the defaults. `size` is sizeof(tessera_chat_options).
void tessera_init_chat_options(tessera_chat_options* options, size_t size);

/// Starts a conversation. `options` may be NULL. Returns TESSERA_FORMAT_ERROR if the file has no chat template and the
/// options name none.
tessera_status tessera_chat_create(const tessera_model* model, const tessera_chat_options* options,
                                   tessera_chat** chat);
/// Frees a conversation. NULL is ignored.
void tessera_chat_free(tessera_chat* chat);
/// Appends a message. `role` is "system", "user", "assistant", "tool", or another role that the template supports.
tessera_status tessera_chat_add(tessera_chat* chat, const char* role, const char* text);
/// Generates an answer and appends it to the conversation. `on_text` gets the answer without thinking; while the model
/// thinks, the pieces are empty, so that it can stop. `on_text` and `generation` may be NULL.
tessera_status tessera_chat_answer(tessera_chat* chat, tessera_text_callback on_text, void* user,
                                   tessera_generation** generation);
/// Returns the conversation as JSON in the format of OpenAI's API. Free it with tessera_string_free().
tessera_status tessera_chat_json(const tessera_chat* chat, char** json);
/// Replaces the conversation by one in the format of tessera_chat_json().
tessera_status tessera_chat_set_json(tessera_chat* chat, const char* json);

#ifdef __cplusplus
}
#endif

#endif
