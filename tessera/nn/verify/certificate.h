// SPDX-License-Identifier: Apache-2.0
// Certificates: proofs in files. They can be checked without repeating the search.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "tessera/nn/verify/prove.h"

namespace tessera {

/// The contents of a certificate file. The file is JSON and contains a SHA-256 hash of each part, so that an edited
/// part can be identified.
struct Certificate {
  std::string library;  ///< version that wrote the file; all versions that support the format can check it
  std::string device;   ///< the model's device, such as "cpu:0"; the certificate can be checked on any device
  std::string layers;   ///< the result of describe(model)
  std::map<std::string, verification::ArrayDigest> arrays;  ///< Digests of the model's arrays, by path.
  Property property;                                        ///< The proven property.
  InputBox box;                                             ///< The inputs for which it was proven.
  std::int64_t batch = 1;                                   ///< largest number of samples per call (ProveOptions)
  std::int64_t kept_class = -1;                             ///< The class that `robust` proves to be constant.
  std::vector<double> low, high;                            ///< bounds of the outputs, slightly wider than in the proof
  double margin = 0;                                        ///< The margin of the proof.
  std::vector<std::int32_t> tree;                           ///< The splits of the box; see Proof::tree.
  std::vector<std::string> edited;                          ///< parts of the file that do not match their hash
};

/// The result of check_certificate.
struct CertificateCheck {
  bool holds = false;  ///< True if the proof holds for this model.
  /// Differences, such as "array 0.weight has different elements" or "the property was edited in the file".
  std::vector<std::string> changed;
  std::uint64_t boxes = 0;  ///< number of boxes that were proven again
  double seconds = 0;       ///< Duration in seconds.
};
/// Describes on several lines whether the certificate is valid, and what changed.
std::string to_string(const CertificateCheck& check);

namespace verification {
/// Creates a certificate from a proof; called by certificate_of().
Certificate certificate_of_subject(const Subject& subject, const Proof& proof);
/// Proves the certificate's property again; called by check_certificate().
CertificateCheck check_subject(const Subject& subject, const Certificate& certificate);
}  // namespace verification

/// Creates a certificate from a proof of a model. Checks the proof again first, with its recorded splits. Throws
/// ArgumentError if the property was not proven, or if the proof does not hold for the current model.
template <class Model>
Certificate certificate_of(const Model& model, const Proof& proof) {
  return verification::certificate_of_subject(verification::subject_of(model), proof);
}
/// Checks a certificate for a model. The layers and all arrays of the model must match the certificate, the file must
/// not have been edited, and this version of the library must be able to prove the bounds again. Each recorded part of
/// the box is proven with the recorded method. The result applies to the current device of the model.
template <class Model>
CertificateCheck check_certificate(const Model& model, const Certificate& certificate) {
  return verification::check_subject(verification::subject_of(model), certificate);
}

/// Writes a certificate to a file. The file is replaced atomically. Throws the errors of save_npy.
void save_certificate(const Certificate& certificate, const std::string& path);
/// Reads a certificate from a file. Throws the errors of InputFile, and FormatError if the file is not a certificate.
/// Edits of the file are not an error here; check_certificate reports them.
Certificate load_certificate(const std::string& path);

}  // namespace tessera
