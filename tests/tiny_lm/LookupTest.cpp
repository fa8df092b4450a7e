//===- LookupTest.cpp - what the text suggests ----------------------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "examples/tiny_lm/Lookup.h"

#include <catch2/catch.hpp>

using namespace tinylm;

static std::span<const uint8_t> bytesOf(const std::string &text) {
  return {reinterpret_cast<const uint8_t *>(text.data()), text.size()};
}

/// The text along the path to each draft that has no child.
static std::vector<std::string> leavesOf(const Candidates &tree) {
  std::vector<std::string> paths, leaves;
  std::vector<bool> isLeaf(tree.drafts.size(), true);
  for (size_t i = 0; i < tree.drafts.size(); ++i) {
    int32_t parent = tree.parents[i];
    REQUIRE(parent < static_cast<int32_t>(i));
    if (parent >= 0)
      isLeaf[parent] = false;
    paths.push_back((parent < 0 ? "" : paths[parent]) +
                    static_cast<char>(tree.drafts[i]));
  }
  for (size_t i = 0; i < paths.size(); ++i)
    if (isLeaf[i])
      leaves.push_back(paths[i]);
  return leaves;
}

TEST_CASE("a chain is what followed the last place") {
  std::string text = "one two. one six. one ";
  Candidates chain = lookUpChain(bytesOf(text), 4);
  CHECK(leavesOf(chain) == std::vector<std::string>{"six."});
}

TEST_CASE("a chain goes on in a loop") {
  std::string text = "abcabcabc";
  Candidates chain = lookUpChain(bytesOf(text), 7);
  CHECK(leavesOf(chain) == std::vector<std::string>{"abcabca"});
}

TEST_CASE("the longest end that is found counts") {
  std::string text = "xabcd1 abcd2 bcd3 abcd";
  CHECK(lookUpChain(bytesOf(text), 1).drafts == std::vector<uint8_t>{'2'});
  LookupOptions options;
  options.longest = 3;
  CHECK(lookUpChain(bytesOf(text), 1, options).drafts ==
        std::vector<uint8_t>{'3'});
}

TEST_CASE("nothing is suggested by what stands for the first time") {
  std::string text = "abcdefg";
  CHECK(lookUpChain(bytesOf(text), 4).drafts.empty());
  CHECK(lookUpTree(bytesOf(text), 4).drafts.empty());
  CHECK(lookUpTree({}, 4).drafts.empty());
}

TEST_CASE("a tree merges what places agree on") {
  std::string text = "the cat. the cow. the dog. the ";
  LookupOptions options;
  options.agreement = 0.5;
  // Of three places, the last counts as four: "d" 4/6, "c" 2/6, then halves.
  std::vector<std::string> leaves =
      leavesOf(lookUpTree(bytesOf(text), 4, options));
  CHECK(leaves == std::vector<std::string>{"c", "dog"});
  // The first byte of each is likelier than the second of one.
  options.agreement = 0.1;
  CHECK(lookUpTree(bytesOf(text), 2, options).parents ==
        std::vector<int32_t>{-1, -1});
  // With full trust in the last place, the tree is a chain.
  options.agreement = 1;
  CHECK(leavesOf(lookUpTree(bytesOf(text), 4, options)).front() == "dog.");
}

TEST_CASE("a tree has the drafts that are asked for at most") {
  std::string text = "abcabcabc";
  CHECK(lookUpTree(bytesOf(text), 5).drafts.size() == 5);
  CHECK(lookUpTree(bytesOf(text), 0).drafts.empty());
}
