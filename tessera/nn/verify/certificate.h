// SPDX-License-Identifier: Apache-2.0
// Certificates: proofs in files, which can be checked again without a search.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "tessera/nn/verify/prove.h"

namespace tessera {

/// The contents of a certificate file: JSON with a SHA-256 hash of each part, to detect which one was edited.
struct Certificate {
  std::string library;  ///< the version that wrote it; any version that supports the format can check it
  std::string device;   ///< the model's device, "cpu:0"; can be checked on any device
  std::string layers;   ///< describe(model)
  std::map<std::string, verification::ArrayDigest> arrays;  ///< The model's arrays, by path, as hashes.
  Property property;                                        ///< The proven property.
  InputBox box;                                             ///< The inputs that it was proven for.
  std::int64_t batch = 1;                                   ///< most samples per call (ProveOptions)
  std::int64_t kept_class = -1;                             ///< The class that `robust` proves constant.
  std::vector<double> low, high;                            ///< bounds of the outputs, slightly wider than the proof's
  double margin = 0;                                        ///< The margin of the proof.
  std::vector<std::int32_t> tree;                           ///< Proof::tree
  std::vector<std::string> edited;                          ///< parts of the file that do not match their hash
};

/// The result of check_certificate.
struct CertificateCheck {
  bool holds = false;  ///< True if the proof holds for this model.
  /// Differences: "array 0.weight has different elements", "the property was edited in the file".
  std::vector<std::string> changed;
  std::uint64_t boxes = 0;  ///< proven again
  double seconds = 0;       ///< How long it took.
};
/// Human-readable lines: whether the certificate is valid, and what changed.
std::string to_string(const CertificateCheck& check);

namespace verification {
/// Creates the certificate of a proof; called by certificate_of().
Certificate certificate_of_subject(const Subject& subject, const Proof& proof);
/// Proves the certificate's property again; called by check_certificate().
CertificateCheck check_subject(const Subject& subject, const Certificate& certificate);
}  // namespace verification

/// Creates a certificate for a proof of a model, after checking the proof again with its recorded splits. Throws
/// ArgumentError if nothing was proven, or if the proof does not hold for the current model.
template <class Model>
Certificate certificate_of(const Model& model, const Proof& proof) {
  return verification::certificate_of_subject(verification::subject_of(model), proof);
}
/// Checks that the model is the certificate's (layers and each array), that the file was not edited, and that this
/// version of the library can prove the bounds again, for each recorded part of the box by the recorded method. The
/// result is about the device that the model is on now.
template <class Model>
CertificateCheck check_certificate(const Model& model, const Certificate& certificate) {
  return verification::check_subject(verification::subject_of(model), certificate);
}

/// Writes a certificate; the file is replaced atomically. Throws the errors of save_npy.
void save_certificate(const Certificate& certificate, const std::string& path);
/// Reads a certificate. Throws the errors of InputFile, and FormatError if the file is not a certificate. Edits are
/// reported by check_certificate.
Certificate load_certificate(const std::string& path);

}  // namespace tessera
