//===- RoutesTest.cpp - every example, route and form ---------------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "tests/models/Reference.h"
#include "tests/numerics/Requests.h"

#include <algorithm>

using namespace ladle;

TEST_CASE("every route and form of every example agrees with the oracle") {
  for (const std::string &model : reference::modelNames()) {
    INFO(model);
    check::CheckRequest request = test::requestOf(model);
    std::vector<RouteKind> routes = test::routesOf(request);
    test::requirePassed(request, check::planCross(routes, {{}}, /*seed=*/1));
  }
}

TEST_CASE(
    "the first tokens of a query that is nearly orthogonal to their keys") {
  // What two heads read of a state with few keys, all that there is, may be a
  // thousandth of its terms.
  check::CheckRequest request = test::requestOf("gated_delta_net");
  request.elaboration.preset = "qwen3-next";
  request.elaboration.sizes = {{"Hk", 1}, {"Hv", 2}};
  Result<check::CheckCase> config = check::CheckCase::parse(
      "route=recurrent,L=15,m=8,drafts=3,trees=1,rows=3,tokens=30,staggered=1,"
      "resets=1,forks=1");
  REQUIRE(config.ok());
  test::requirePassed(request, {*config});
}

TEST_CASE("every example has the routes that its operands allow") {
  for (const std::string &model : reference::modelNames()) {
    INFO(model);
    std::vector<RouteKind> expected = {RouteKind::Recurrent, RouteKind::Outer,
                                       RouteKind::Inner, RouteKind::Adjoint,
                                       RouteKind::KvOnly};
    // A query of the fast state cannot be carried back through the slow one.
    if (model == "coupled")
      expected.erase(expected.begin() + 3);
    // Whichever comes first is the choice of the cost model.
    std::vector<RouteKind> routes = test::routesOf(test::requestOf(model));
    std::sort(routes.begin(), routes.end());
    REQUIRE(routes == expected);
  }
}
