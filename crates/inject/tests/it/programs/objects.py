# Makes objects of a known size at known lines, some of them through C and back.
kept = []


def leaf(number):
    kept.append(bytes(number + 300))  # 33 bytes more with its header


def through_c(number):
    return list(map(leaf, [number]))


class Holder:
    def method(self, number):
        through_c(number)


for number in range(100):
    Holder().method(number)
big = bytearray(5_000_000)
