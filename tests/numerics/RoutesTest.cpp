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
