/* SPDX-License-Identifier: MIT */
/* The runner of the unit tests: see cu_main.h. */
#include "cu_main.h"

#include <CUnit/Basic.h>

#include "soak.h"

int cu_run(const char *suite, CU_TestInfo *tests)
{
    CU_SuiteInfo suites[] = {{.pName = suite, .pTests = tests}, CU_SUITE_INFO_NULL};
    if (CU_initialize_registry() != CUE_SUCCESS || CU_register_suites(suites) != CUE_SUCCESS)
        return 1;
    CU_basic_set_mode(CU_BRM_VERBOSE);
    int ok = CU_basic_run_tests() == CUE_SUCCESS && CU_get_number_of_tests_run() > 0 &&
             CU_get_number_of_failures() == 0;
    soak_print();
    CU_cleanup_registry();
    return ok ? 0 : 1;
}
