// SPDX-License-Identifier: Apache-2.0
// Proofs in files: what was proven of which model, in a form that is proven again without a search.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "tessera/nn/verify/prove.h"

namespace tessera {

/// What stands in the file of a certificate: JSON, with a SHA-256 of each part, so that it is known which was edited.
struct Certificate {
  std::string library;  ///< the version that wrote it; any version that reads the format checks it
  std::string device;   ///< "cpu:0", where the model was; it is checked on any device
  std::string layers;   ///< describe(model)
  std::map<std::string, verification::ArrayDigest> arrays;  ///< The model's arrays, by path, as hashes.
  Property property;                                        ///< What was proven.
  InputBox box;                                             ///< The inputs for which it was proven.
  std::int64_t batch = 1;                                   ///< samples of a call, at most (ProveOptions)
  std::int64_t kept_class = -1;                             ///< The class that `robust` keeps.
  std::vector<double> low, high;                            ///< bounds of the outputs, a little outward of the proof's
  double margin = 0;                                        ///< The margin that the proof left.
  std::vector<std::int32_t> tree;                           ///< Proof::tree
  std::vector<std::string> edited;                          ///< parts of the file whose hash is not theirs
};

/// The result of check_certificate.
struct CertificateCheck {
  bool holds = false;  ///< True if the proof holds for this model.
  /// What no longer fits: "array 0.weight has other elements", "the property was edited in the file".
  std::vector<std::string> changed;
  std::uint64_t boxes = 0;  ///< proven again
  double seconds = 0;       ///< How long it took.
};
std::string to_string(const CertificateCheck& check);  ///< Lines for people: whether it holds, and what changed.

namespace verification {
/// The certificate of a proof; certify() for models.
Certificate certificate_of_subject(const Subject& subject, const Proof& proof);
/// Proves the certificate's property again; check_certificate() for models.
CertificateCheck check_subject(const Subject& subject, const Certificate& certificate);
}  // namespace verification

/// Of a model and what prove said of it. It is proven once more, by the parts of that proof: ArgumentError if nothing
/// was proven, or they do not prove it of the model as it is now.
template <class Model>
Certificate certificate_of(const Model& model, const Proof& proof) {
  return verification::certificate_of_subject(verification::subject_of(model), proof);
}
/// Whether the model is the one that the certificate is about (layers, each array), the file was not edited, and this
/// version of the library finds the bounds again: for each part of the box, by the means noted there. The claim is
/// about the device that the model is on now.
template <class Model>
CertificateCheck check_certificate(const Model& model, const Certificate& certificate) {
  return verification::check_subject(verification::subject_of(model), certificate);
}

/// In one step, whatever ends the program: the old file, or the new one. Errors of save_npy.
void save_certificate(const Certificate& certificate, const std::string& path);
/// Errors of InputFile; FormatError: the file is no certificate. Whatever was edited in it is told by
/// check_certificate.
Certificate load_certificate(const std::string& path);

}  // namespace tessera
