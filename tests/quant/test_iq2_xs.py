from tests.quant.oracle import agrees, check, raw


def test_block_written_by_hand() -> None:
    check("IQ2_XS", raw("IQ2_XS", {0: "003c", 2: "0102", 66: "53"}), {range(16): 7.0, range(16, 32): 11.0, 0: -37.625, 7: -7.0}, rest=1.0)


def test_equals_the_gguf_package() -> None:
    agrees("IQ2_XS")
