// SPDX-License-Identifier: Apache-2.0
// run_child reports each way in which a child can end, isolates the caller from the child, and leaves no process
// running. The test program runs itself as the child.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <thread>

#include "tessera/base/os/child.h"
#include "tessera/base/os/process_tree.h"

namespace tessera::os {
namespace {

using namespace std::chrono_literals;
using End = ChildOutcome::End;

[[noreturn]] void wait_for_ever() {
  for (;;) ::pause();
}

/// Starts a process in a new session whose parent exits. The process writes its id to the answer descriptor.
void leave_daemon() {
  if (::fork() != 0) return;
  ::setsid();
  if (::fork() != 0) ::_exit(0);
  write_answer(answer_descriptor, "daemon " + std::to_string(::getpid()) + "\n");
  wait_for_ever();
}

int child(const std::string& deed) {
  if (deed == "answer") {
    std::printf("words\n");
    std::fflush(stdout);
    write_answer(answer_descriptor, "answer");
  } else if (deed == "exit") {
    return 7;
  } else if (deed == "crash") {
    ::raise(SIGSEGV);
  } else if (deed == "hang") {
    wait_for_ever();
  } else if (deed == "stop") {
    ::raise(SIGSTOP);
  } else if (deed == "memory" || deed == "memory-below") {
    if (deed == "memory-below" && ::fork() != 0) wait_for_ever();
    for (;;) std::memset(new char[1 << 20], 1, 1 << 20);
  } else if (deed == "flood") {
    while (write_answer(answer_descriptor, std::string(1 << 16, 'x'))) {}
  } else if (deed == "daemon") {
    leave_daemon();
    std::this_thread::sleep_for(50ms);
  } else if (deed == "daemon-crash") {
    leave_daemon();
    std::this_thread::sleep_for(50ms);
    ::abort();
  } else if (deed == "kill-parent") {
    leave_daemon();
    std::this_thread::sleep_for(50ms);
    ::kill(::getppid(), SIGKILL);
    wait_for_ever();
  } else if (deed == "kill-group") {
    ::kill(0, SIGKILL);
  } else if (deed == "signal-parent") {
    for (const int signal : {SIGTERM, SIGINT, SIGHUP, SIGSTOP}) ::kill(::getppid(), signal);
    wait_for_ever();
  } else if (deed == "forks") {
    for (int i = 0; i < 200; ++i)
      if (::fork() == 0) wait_for_ever();
    wait_for_ever();
  }
  return 0;
}

ChildOutcome run(const std::string& deed, const ChildLimits& limits = {.time = 10s}) {
  const std::vector<std::string> command = {"/proc/self/exe", deed};
  const auto start = std::chrono::steady_clock::now();
  ChildOutcome outcome = run_child(command, limits);
  EXPECT_LT(std::chrono::steady_clock::now() - start, limits.time + 2s) << deed;
  EXPECT_TRUE(descendants_of(::getpid()).empty()) << deed;
  return outcome;
}

/// Checks that the daemon in the answer has ended.
void expect_no_daemon(const std::string& answer) {
  ASSERT_EQ(answer.find("daemon "), 0u) << answer;
  const auto process = static_cast<pid_t>(std::stol(answer.substr(7)));
  // The system needs some time to reap it.
  for (int i = 0; i < 100 && start_of(process) != 0; ++i) std::this_thread::sleep_for(10ms);
  std::ifstream stat("/proc/" + std::to_string(process) + "/stat");
  std::string text((std::istreambuf_iterator<char>(stat)), {});
  EXPECT_TRUE(text.empty() || text.find(") Z ") != text.npos) << text;
}

TEST(Child, ReportsHowTheChildEnded) {
  const ChildOutcome good = run("answer");
  EXPECT_EQ(good.end, End::exited);
  EXPECT_EQ(good.code, 0);
  EXPECT_EQ(good.answer, "answer");
  EXPECT_EQ(good.words, "words\n");
  EXPECT_EQ(run("exit").code, 7);
  const ChildOutcome crash = run("crash");
  EXPECT_EQ(crash.end, End::signalled);
  EXPECT_EQ(crash.code, SIGSEGV);
  for (const char* deed : {"hang", "stop", "signal-parent", "forks"})
    EXPECT_EQ(run(deed, {.time = 500ms}).end, End::timed_out) << deed;
}

TEST(Child, ReportsExitStatusWhenSigchldIsIgnored) {
  ::signal(SIGCHLD, SIG_IGN);
  EXPECT_EQ(run("exit").code, 7);
  EXPECT_EQ(run("crash").code, SIGSEGV);
  ::signal(SIGCHLD, SIG_DFL);
}

TEST(Child, KillsChildThatExceedsItsMemoryOrAnswerLimit) {
  const ChildLimits limits = {.time = 10s, .memory = 200 << 20, .answer = 1 << 20};
  EXPECT_EQ(run("memory", limits).end, End::too_much_memory);
  EXPECT_EQ(run("memory-below", limits).end, End::too_much_memory);
  EXPECT_EQ(run("flood", limits).end, End::too_much_answer);
}

TEST(Child, KillsDescendantsAndIsolatesCallerFromSignals) {
  for (const char* deed : {"daemon", "daemon-crash", "kill-parent"}) expect_no_daemon(run(deed).answer);
  EXPECT_TRUE(run("kill-parent").unwatched);
  const ChildOutcome group = run("kill-group");
  EXPECT_EQ(group.end, End::signalled);
  EXPECT_EQ(group.code, SIGKILL);
}

TEST(ProcessWatch, ReportsTheEndBeforeTheParentWaits) {
  const pid_t child = ::fork();
  if (child == 0) {
    for (;;) ::pause();
  }
  const ProcessWatch watch(child, start_of(child)), other(child, start_of(child) + 1);
  EXPECT_FALSE(watch.has_ended());
  ::kill(child, SIGKILL);
  for (int i = 0; i < 500 && !watch.has_ended(); ++i) std::this_thread::sleep_for(10ms);
  EXPECT_TRUE(watch.has_ended());
  EXPECT_FALSE(other.has_ended()) << "another process with the same id";
  ::waitpid(child, nullptr, 0);
  EXPECT_TRUE(watch.has_ended());
}

}  // namespace
}  // namespace tessera::os

int main(int argc, char** argv) {
  const std::string_view last = argv[argc - 1];
  if (last.starts_with(tessera::os::child_option)) {
    tessera::os::become_supervised_child(last.substr(tessera::os::child_option.size()));
    tessera::os::leave(tessera::os::child(argv[1]));
  }
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
