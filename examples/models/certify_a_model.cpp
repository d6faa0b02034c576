// SPDX-License-Identifier: Apache-2.0
// How do I ship a proof with a model?
// A certificate is a JSON file that can be checked without a search. It becomes invalid if the model changes.
#include <tessera/nn/layers.h>
#include <tessera/nn/sequential.h>
#include <tessera/nn/verify/certificate.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>

using namespace tessera;

int main() {
  const auto model = setup(sequential(dense<4, 16>, relu, dense<16, 3>), {.seed = 1});
  const Proof proof = prove(model, bounded(-10, 10), InputBox::of({4}, -1, 1));
  std::printf("%s\n", std::string(verdict_name(proof.verdict)).c_str());

  const std::string file =
      std::filesystem::temp_directory_path() / ("tessera-certificate-" + std::to_string(::getpid()) + ".json");
  save_certificate(certificate_of(model, proof), file);
  const Certificate certificate = load_certificate(file);
  std::filesystem::remove(file);

  const CertificateCheck check = check_certificate(model, certificate);
  std::printf("certificate: %s\n", check.holds ? "valid" : "invalid");

  auto edited = clone(model);
  edited.get<2>().bias = edited.get<2>().bias + 1e-3;
  const CertificateCheck stale = check_certificate(edited, certificate);
  std::printf("for the edited model: %s\n", to_string(stale).c_str());
  return proof.verdict == Verdict::proven && check.holds && !stale.holds ? 0 : 1;
}

// Output:
// proven
// certificate: valid
// for the edited model: invalid:
//   ...2.bias...
