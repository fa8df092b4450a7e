# Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""check_run.py FILE ROUTE M: what `ladle run --json` of the real trace says."""

import json
import sys


def main():
    with open(sys.argv[1], encoding="utf-8") as file:
        report = json.load(file)
    assert report["passed"], report
    assert report["chosen"] == sys.argv[2] and report["chosen_by"] == "user"
    assert report["compared_tokens"] == 2048
    routes = {route["route"]: route for route in report["routes"]}
    assert routes[sys.argv[2]]["m"] == int(sys.argv[3])
    for route in routes.values():
        for name, error in route["errors"].items():
            assert error["relative"] <= 1e-5, (route["route"], name, error)
        assert route["measured"]["rows"] == report["rows"]
        assert route["cache_resident"]["rows"] == 1
    # A buffer reads the states at every token, and writes them at some.
    assert routes["inner"]["bytes_a_token"] < routes["recurrent"]["bytes_a_token"]


if __name__ == "__main__":
    main()
