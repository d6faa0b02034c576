// SPDX-License-Identifier: Apache-2.0
// A trie of the bytes of all tokens that can be part of a text. Tokens with the same beginning share the path to it, so
// a grammar is checked once for all of them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace tessera {
class Tokenizer;
}

namespace tessera::grammar {

/// An immutable trie. Nodes are numbered in preorder: the nodes below node n are n + 1 to end(n) - 1. Node 0 is the
/// root, which is the empty text.
class TokenTrie {
 public:
  /// The trie of a vocabulary. Control tokens, unknown and unused tokens, tokens without bytes and end tokens are left
  /// out.
  explicit TokenTrie(const Tokenizer& tokenizer);
  /// `bytes` contains the bytes of each token. Tokens without bytes are left out.
  explicit TokenTrie(std::span<const std::string_view> bytes);

  std::uint32_t size() const { return static_cast<std::uint32_t>(nodes_.size()); }  ///< number of nodes
  std::size_t tokens() const { return tokens_; }                                    ///< number of tokens
  std::uint8_t byte(std::uint32_t node) const { return nodes_[node].byte; }         ///< the last byte of a node's text
  std::uint32_t depth(std::uint32_t node) const { return nodes_[node].depth; }      ///< the number of bytes of its text
  std::uint32_t end(std::uint32_t node) const { return nodes_[node].end; }
  std::uint32_t max_depth() const { return max_depth_; }
  /// The tokens whose bytes are the text of this node.
  std::span<const std::int32_t> ids(std::uint32_t node) const {
    const std::uint32_t first = nodes_[node].first_id;
    return {ids_.data() + first, ids_.data() + nodes_[node].last_id};
  }

 private:
  struct Node {
    std::uint32_t end, first_id, last_id;
    std::uint16_t depth;
    std::uint8_t byte;
  };
  std::vector<Node> nodes_;
  std::vector<std::int32_t> ids_;
  std::size_t tokens_ = 0;
  std::uint32_t max_depth_ = 0;
};

}  // namespace tessera::grammar
