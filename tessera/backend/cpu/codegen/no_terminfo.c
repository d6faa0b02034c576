/* SPDX-License-Identifier: Apache-2.0 */
/* Replaces libtinfo in portable builds. LLVM uses these functions to find out whether a terminal has colours, but the
 * module prints nothing. */
#pragma GCC visibility push(hidden)

int setupterm(const char* terminal, int descriptor, int* error) {
  (void)terminal, (void)descriptor;
  *error = 0;
  return -1; /* unknown terminal */
}
void* set_curterm(void* terminal) {
  (void)terminal;
  return 0;
}
int del_curterm(void* terminal) {
  (void)terminal;
  return -1;
}
int tigetnum(const char* capability) {
  (void)capability;
  return -1;
}

#pragma GCC visibility pop
