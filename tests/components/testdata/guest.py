"""What a program in Python does with WASI 0.2."""
import hashlib
import json
import os
import random
import re
import sys
import time

from wit_world import exports


class Run(exports.Run):
    def run(self):
        print(sys.argv[1:], os.environ.get("A"))
        for line in sys.stdin:
            print(re.sub(r"(\w+)", r"<\1>", line), end="")
        os.makedirs("/home/a/b")
        with open("/home/a/b/file", "w") as f:
            f.write("content\n" * 1000)
        with open("/home/a/b/file") as f:
            print(hashlib.sha256(f.read().encode()).hexdigest())
        os.rename("/home/a/b/file", "/home/moved")
        print(sorted(os.listdir("/home")), os.stat("/home/moved").st_size)
        try:
            open("/home/none")
        except OSError as e:
            print(type(e).__name__, e)
        start = time.monotonic()
        time.sleep(0.01)
        print(time.monotonic() - start >= 0.01, 0 <= random.random() < 1, time.time() > 1.7e9)
        print(json.dumps({"sum": sum(range(100000)), "list": [i * i for i in range(10)]}))
        print("done", file=sys.stderr)
        sys.exit(1)
