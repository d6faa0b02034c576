// SPDX-License-Identifier: Apache-2.0
#include "rope_options.h"

#include "arguments.h"
#include "tessera/base/error.h"
#include "tessera/llm/rope_scaling.h"

namespace tessera::app {

void RopeOptions::declare(CLI::App& sub) {
  const std::string group = "Texts longer than those of the training";
  sub.add_option("--rope-scaling", type, "How rotary positions are scaled (default: as in the file, else linear)")
      ->group(group)
      ->check(CLI::IsMember({"none", "linear", "yarn"}));
  sub.add_option("--rope-scale", factor, "The context becomes this many times as long")
      ->group(group)
      ->check(number(1, 1e6));
  sub.add_option("--yarn-orig-ctx", original, "With yarn: the context length of the training (default: as in the file)")
      ->group(group)
      ->transform(integer_in_range(1, std::int64_t{1} << 30));
}

void RopeOptions::apply(GgufFile& file) const {
  using Type = RopeScaling::Type;
  if (type.empty() && !factor && original == 0) return;
  // Without a type, the file's own one is used, and linear scaling if it has none.
  const std::string key = file.get<std::string>("general.architecture") + ".rope.scaling.type";
  const std::string name = !type.empty() ? type : file.get_or<std::string>(key, "linear");
  const Type kind = name == "none" && !type.empty() ? Type::none : name == "yarn" ? Type::yarn : Type::linear;
  const auto wrong = [](const std::string& what, const std::string& remedy) {
    fail<ArgumentError>({.operation = "rope scaling", .wrong = what, .remedy = remedy});
  };
  if (kind != Type::yarn && original != 0)
    wrong("--yarn-orig-ctx is only used by yarn", "Add --rope-scaling yarn, or omit it");
  if (kind == Type::none && factor) wrong("--rope-scaling none has no factor", "Omit --rope-scale");
  if (kind != Type::none && !factor) wrong("the factor is missing", "Add --rope-scale, such as --rope-scale 4");
  set_rope_scaling(file, {kind, factor.value_or(1), original});
}

}  // namespace tessera::app
