from tests.quant.oracle import agrees, check, quantizes_like_gguf, raw


def test_block_written_by_hand() -> None:
    check("Q4_1", raw("Q4_1", {0: "0038 00bc", 5: "2f"}), {1: 6.5, 17: 0.0}, rest=-1.0)


def test_equals_the_gguf_package() -> None:
    agrees("Q4_1")


def test_quantizes_like_the_gguf_package() -> None:
    quantizes_like_gguf("Q4_1")
