// SPDX-License-Identifier: Apache-2.0
#include "tessera/task/rank_value.h"

#include "tessera/task/ranks.h"
#include "tessera/task/task.h"

namespace tessera::detail {

void ByteWriter::array(const Array& x) {
  RankValue<DType>::write(*this, x.dtype());
  RankValue<std::vector<std::int64_t>>::write(*this, std::vector<std::int64_t>(x.shape()));
  const std::size_t at = bytes.size();
  bytes.resize(at + x.bytes());
  if (x.size() != 0) x.download(bytes.data() + at);
}

Array ByteReader::array() {
  const DType dtype = RankValue<DType>::read(*this);
  const Shape shape(RankValue<std::vector<std::int64_t>>::read(*this));
  const Array host = Array::empty(shape, dtype, Device{});
  if (host.size() != 0) raw(host.host_access().data(), host.bytes());
  return host.to(current_device());
}

void exchange_result(RankedTask& task, const Callback<void(ByteWriter&)>& wait_here) {
  if (task.exchanged) {
    if (task.error) std::rethrow_exception(task.error);
    return;
  }
  // The first byte tells whether the task has failed. Then its name and the texts of its error follow, or the result.
  ByteWriter to;
  if (task.here) {
    RankValue<bool>::write(to, false);
    try {
      wait_here(to);
    } catch (const std::exception& e) {
      task.error = std::current_exception();
      const auto* const failed = dynamic_cast<const TaskError*>(&e);
      to.bytes.clear();
      RankValue<bool>::write(to, true);
      RankValue<std::string>::write(to, failed != nullptr && !failed->tasks().empty() ? failed->tasks().front() : "");
      RankValue<std::string>::write(to, e.what());
      RankValue<std::string>::write(to, failed != nullptr ? text_of(failed->cause()) : e.what());
    }
  }
  task.messages->broadcast(to.bytes, task.rank);
  task.exchanged = true;
  ByteReader from(to.bytes);
  if (!RankValue<bool>::read(from)) {
    if (!task.here) task.bytes.assign(to.bytes.begin() + 1, to.bytes.end());
    return;
  }
  const std::string name = RankValue<std::string>::read(from), text = RankValue<std::string>::read(from);
  const std::string cause = RankValue<std::string>::read(from);
  if (!task.error)
    task.error = std::make_exception_ptr(
        TaskError("rank " + std::to_string(task.rank) + ": " + text, {name}, std::make_exception_ptr(Error(cause))));
  std::rethrow_exception(task.error);
}

void throw_not_sendable() {
  fail<ArgumentError>({.operation = "fetch",
                       .wrong = "the result's type cannot be sent to other ranks",
                       .remedy = "Return numbers, strings, arrays, or vectors and tuples of these"});
}

}  // namespace tessera::detail
